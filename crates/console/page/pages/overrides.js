// All temporary overrides in one list: who has another limit than the rules say, until when, and why.

import { get } from '../api.js';
import { badge, el, panel, put, visible } from '../dom.js';
import { counted, dateTime, span, unix } from '../format.js';
import { keyLink, keyOfOverride, ruleLink, takesOverrides } from '../keys.js';
import { withUnit } from '../limit-text.js';
import { attempt } from '../messages.js';
import { overriddenClient, removeButton } from '../overrides.js';
import { nameOf, readRules } from '../rules.js';
import { sortable } from '../table.js';

const EVERY = 15_000;

export async function showOverrides(main) {
  const { byId } = await readRules();
  let all = [];
  let reads = 0;

  const left = (row) => Math.max(0, Math.round(unix(row.expires_at) - Date.now() / 1000));
  const table = sortable('Temporary overrides', [
    { name: 'Client', isHead: true, value: overriddenClient, cell: client },
    { name: 'Rule', value: (row) => nameOf(row.rule), cell: (row) => ruleLink(row.rule) },
    { name: 'Limit', cell: (row) => (['blocked', 'unlimited'].includes(row.limit) ? badge(row.limit === 'blocked' ? 'bad' : 'careful', row.limit) : withUnit(row.limit, byId.get(row.rule))) },
    { name: 'Ends in', isNumber: true, value: left, cell: (row) => el('span', { title: dateTime(row.expires_at) }, span(left(row))) },
    { name: 'Set by', isWideOnly: true, value: (row) => row.by ?? '', cell: (row) => visible(row.by ?? '–') },
    { name: 'Reason', isWideOnly: true, cell: (row) => el('bdi', {}, visible(row.reason ?? '–')) },
    { name: 'Change', cell: (row) => removeButton(row, read) },
  ], { sortBy: 'Ends in', isDown: false, most: 100, empty: 'None. The page of a client has the button “Override…”.' });
  const search = el('input', { type: 'search', id: 'override-search', 'aria-label': 'Search in clients, rules and reasons', placeholder: 'Client, rule or reason', autocomplete: 'off', spellcheck: 'false', oninput: show });
  const number = el('span', { class: 'badge' });
  put(main,
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, 'Temporary overrides'), number, el('div', { class: 'actions' }, search)),
    panel('In force', null, el('p', { class: 'small quiet' }, 'They beat tiers and the overrides in the rules. When one ends, the rule’s own limit applies again. “Changes” has those that ended.'), table.element));

  /** A link to the client, where the rule that overrides it is still there. */
  function client(row) {
    const rule = byId.get(row.rule);
    return takesOverrides(rule) ? keyLink(row.rule, keyOfOverride(rule, row)) : el('bdi', { class: 'mono' }, overriddenClient(row));
  }

  function show() {
    const wanted = search.value.trim().toLowerCase();
    const has = (row) => [overriddenClient(row), row.key, nameOf(row.rule), row.limit, row.by, row.reason].some((text) => String(text ?? '').toLowerCase().includes(wanted));
    table.show(all.filter(has));
    number.textContent = `${counted(all.length, 'override')} in force`;
  }

  /** Reads the list again. An answer that is overtaken by that of a later question is dropped. */
  async function read() {
    reads += 1;
    const mine = reads;
    const { overrides } = await get('overrides');
    if (mine !== reads) return;
    all = overrides;
    show();
  }

  const again = attempt('The list is not current', read);
  await read();
  const timer = setInterval(() => { if (!main.querySelector('table').contains(document.activeElement)) again(); }, EVERY);
  return () => clearInterval(timer);
}
