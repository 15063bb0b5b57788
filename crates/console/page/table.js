// A table whose columns can be sorted by buttons in its head. Of many rows the first are shown, and more on request.

import { el, put, scroll } from './dom.js';
import { count } from './format.js';

// How many groups are shown at first, and the fewest rows of each.
const [GROUPS, FEWEST] = [20, 10];

const collator = new Intl.Collator('en', { numeric: true });

/**
 * Columns have `name`, `cell(row)`, and optionally `value(row)` to sort by, `isNumber`, `isWideOnly`, `isHead`.
 * Returns the element and `show(rows)`. The order is that of the reader once one was chosen. With `groupOf(row)` rows of a
 * group are together, below `groupHead(name, rows)`; a row without a group stands alone.
 */
export function sortable(label, columns, { sortBy, isDown = true, most = 50, empty, groupOf = () => null, groupHead }) {
  let order = { column: columns.find((column) => column.name === sortBy), isDown };
  let rows = [];
  // How many rows of a group are shown, once the reader wants more of them; and how many groups.
  const wanted = new Map();
  let groupsShown = GROUPS;
  const more = el('p', { class: 'row small quiet' });
  const kind = (column) => [column.isNumber && 'number', column.isWideOnly && 'wide-only'].filter(Boolean).join(' ') || undefined;
  const heads = columns.map((column) => {
    const head = el('th', { scope: 'col', class: kind(column) });
    if (column.value) head.append(el('button', { type: 'button', onclick: () => choose(column) }, column.name));
    else head.append(column.name);
    return head;
  });
  const table = el('table', {}, el('caption', { class: 'hidden' }, label), el('thead', {}, el('tr', {}, heads)));
  const element = el('div', {}, scroll(label, table), more);

  function choose(column) {
    order = { column, isDown: order.column === column ? !order.isDown : column.isNumber };
    draw();
  }

  /** Rows by their group, in the order of the first row of each. */
  function groups(sorted) {
    const found = new Map();
    for (const row of sorted) {
      const name = groupOf(row);
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(row);
    }
    return [...found];
  }

  function draw() {
    columns.forEach((column, index) => {
      if (column === order.column) heads[index].setAttribute('aria-sort', order.isDown ? 'descending' : 'ascending');
      else heads[index].removeAttribute('aria-sort');
    });
    const all = groups(order.column ? [...rows].sort(compare) : rows);
    const each = Math.max(FEWEST, Math.floor(most / Math.min(GROUPS, Math.max(1, all.length))));
    const focused = element.contains(document.activeElement) ? nameOfStop(document.activeElement) : undefined;
    table.querySelectorAll('tbody').forEach((body) => body.remove());
    table.append(...all.slice(0, groupsShown).map(([name, members]) => groupBody(name, members, each)));
    if (rows.length === 0) table.append(el('tbody', {}, el('tr', {}, el('td', { colspan: columns.length, class: 'empty' }, typeof empty === 'function' ? empty() : empty))));
    put(more, all.length > groupsShown && moreButton('groups', `${count(groupsShown)} of ${count(all.length)} groups shown`, all.length - groupsShown, GROUPS, (next) => { groupsShown += next; }));
    const stops = [...element.querySelectorAll('a, [data-more]')];
    // Where there is nothing more to show, the focus stays near.
    const body = [...table.tBodies].find((part) => part.dataset.rows === focused);
    if (focused) (stops.find((stop) => nameOfStop(stop) === focused) ?? body?.querySelector('tr:last-child a'))?.focus();
  }

  function groupBody(name, members, each) {
    const shown = members.slice(0, wanted.get(name) ?? each);
    return el('tbody', { 'data-rows': `rows ${name}` },
      name !== null && el('tr', { class: 'group' }, el('th', { scope: 'rowgroup', colspan: columns.length }, groupHead(name, members))),
      shown.map((row) => el('tr', {}, columns.map((column) => el(column.isHead ? 'th' : 'td', { scope: column.isHead ? 'row' : undefined, class: kind(column) }, column.cell(row))))),
      members.length > shown.length && el('tr', {}, el('td', { colspan: columns.length, class: 'small quiet' },
        moreButton(`rows ${name}`, `${count(shown.length)} of ${count(members.length)} shown`, members.length - shown.length, most, (next) => wanted.set(name, shown.length + next)))));
  }

  function moreButton(name, text, left, step, act) {
    const next = Math.min(left, step);
    return [`${text} `, el('button', { type: 'button', class: 'plain', 'data-more': name, onclick: () => { act(next); draw(); } }, `Show ${count(next)} more`)];
  }

  function compare(a, b) {
    const [x, y] = [order.column.value(a), order.column.value(b)];
    const by = typeof x === 'string' ? collator.compare(x, y) : x - y;
    return order.isDown ? -by : by;
  }

  return {
    element,
    show(next) { rows = next; draw(); },
  };
}

/** What the focus returns to after a table was drawn again. */
const nameOfStop = (stop) => stop.getAttribute('href') ?? stop.dataset.more;

/** A plain table. Each row is a list of cells; columns are `[name, isNumber]`. */
export function plainTable(label, columns, rows) {
  const kind = ([, isNumber]) => (isNumber ? 'number' : undefined);
  return scroll(label, el('table', {},
    el('caption', { class: 'hidden' }, label),
    el('thead', {}, el('tr', {}, columns.map((column) => el('th', { scope: 'col', class: kind(column) }, column[0])))),
    el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((cell, index) => el('td', { class: kind(columns[index]) }, cell)))))));
}
