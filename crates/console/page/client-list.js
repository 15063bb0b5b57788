// The clients of the last hour that were denied most, with a search.

import { el, panel, prose, put } from './dom.js';
import { ago, brief } from './format.js';
import { keyLink, ruleLink } from './keys.js';
import { nameOf } from './rules.js';
import { findClients } from './search.js';
import { sortable } from './table.js';
import { brieflyInUnit, unitOf } from './unit.js';

const [PAUSE, MOST] = [200, 100];

/** The list, with what the `rules` count. */
export function clientList(rules) {
  const units = new Map(rules.map((rule) => [rule.id, unitOf(rule)]));
  let asking = new AbortController();
  let timer = 0;
  const note = el('p', { class: 'small quiet' });
  const field = el('input', { type: 'search', id: 'client-search', 'aria-label': 'Search for a client', placeholder: 'A part of its name, a digest, or its key', autocomplete: 'off', spellcheck: 'false', oninput: () => { clearTimeout(timer); timer = setTimeout(read, PAUSE); } });
  const table = sortable('Clients of the last hour', [
    { name: 'Client', isHead: true, cell: (row) => keyLink(row.rule, row.key) },
    { name: 'Rule', value: (row) => nameOf(row.rule), cell: (row) => ruleLink(row.rule) },
    { name: 'Denied', isNumber: true, value: (row) => row.denied, cell: (row) => brief(row.denied) },
    { name: 'Used', isNumber: true, isWideOnly: true, value: (row) => row.used, cell: (row) => brieflyInUnit(row.used, units.get(row.rule) ?? 'requests') },
    { name: 'Last seen', isNumber: true, value: (row) => row.last_seen ?? 0, cell: (row) => (row.last_seen ? ago(row.last_seen) : '–') },
  ], { sortBy: 'Denied', most: 20, empty: 'No client of the last hour has this in its name.' });

  async function read() {
    asking.abort();
    asking = new AbortController();
    try {
      table.show(await findClients(field.value.trim(), { limit: MOST, signal: asking.signal }));
      put(note);
    } catch (problem) {
      if (problem.name === 'AbortError') return;
      table.show([]);
      put(note, problem.status === 404 ? 'There is no list of clients: activity is off.' : prose(problem.message));
    }
  }

  read();
  return {
    element: panel('Find a client', el('span', { class: 'small quiet' }, 'most denied of the last hour'), el('div', { class: 'field' }, field), table.element, note),
    stop() {
      clearTimeout(timer);
      asking.abort();
    },
  };
}
