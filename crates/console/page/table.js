// A table whose columns can be sorted by buttons in its head.

import { el, put, scroll } from './dom.js';

/**
 * Columns have `name`, `cell(row)`, and optionally `value(row)` to sort by, `isNumber`, `isWideOnly`, `isHead`.
 * Returns the element and `show(rows)`. The order is that of the reader once one was chosen.
 */
export function sortable(label, columns, { sortBy, isDown = true, most = 50, empty }) {
  let order = { column: columns.find((column) => column.name === sortBy), isDown };
  let rows = [];
  let isWhole = false;
  const body = el('tbody');
  const more = el('p', { class: 'row small quiet' });
  const kind = (column) => [column.isNumber && 'number', column.isWideOnly && 'wide-only'].filter(Boolean).join(' ') || undefined;
  const heads = columns.map((column) => {
    const head = el('th', { scope: 'col', class: kind(column) });
    if (column.value) head.append(el('button', { type: 'button', onclick: () => choose(column) }, column.name));
    else head.append(column.name);
    return head;
  });
  const table = el('table', {}, el('caption', { class: 'hidden' }, label), el('thead', {}, el('tr', {}, heads)), body);

  function choose(column) {
    order = { column, isDown: order.column === column ? !order.isDown : column.isNumber };
    draw();
  }

  function draw() {
    columns.forEach((column, index) => {
      if (column === order.column) heads[index].setAttribute('aria-sort', order.isDown ? 'descending' : 'ascending');
      else heads[index].removeAttribute('aria-sort');
    });
    const sorted = order.column ? [...rows].sort(compare) : rows;
    const shown = isWhole ? sorted : sorted.slice(0, most);
    const focused = body.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
    put(body, shown.map((row) => el('tr', {}, columns.map((column) => {
      const isHead = column.isHead;
      return el(isHead ? 'th' : 'td', { scope: isHead ? 'row' : undefined, class: kind(column) }, column.cell(row));
    }))));
    if (rows.length === 0) body.append(el('tr', {}, el('td', { colspan: columns.length, class: 'empty' }, empty)));
    if (focused) [...body.querySelectorAll('a')].find((a) => a.getAttribute('href') === focused)?.focus();
    put(more, sorted.length > shown.length && [
      `${shown.length} of ${sorted.length} shown`,
      el('button', { type: 'button', class: 'plain', onclick: () => { isWhole = true; draw(); } }, 'Show all'),
    ]);
  }

  function compare(a, b) {
    const [x, y] = [order.column.value(a), order.column.value(b)];
    const by = typeof x === 'string' ? x.localeCompare(y) : x - y;
    return order.isDown ? -by : by;
  }

  return {
    element: el('div', {}, scroll(label, table), more),
    show(next) { rows = next; draw(); },
  };
}

/** A plain table. Each row is a list of cells; columns are `[name, isNumber]`. */
export function plainTable(label, columns, rows) {
  const kind = ([, isNumber]) => (isNumber ? 'number' : undefined);
  return scroll(label, el('table', {},
    el('caption', { class: 'hidden' }, label),
    el('thead', {}, el('tr', {}, columns.map((column) => el('th', { scope: 'col', class: kind(column) }, column[0])))),
    el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((cell, index) => el('td', { class: kind(columns[index]) }, cell)))))));
}
