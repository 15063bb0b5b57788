// Finds clients by a part of their name, in the bar and on the page of a client.

import { get } from './api.js';
import { el, notice, put } from './dom.js';
import { ago, brief } from './format.js';
import { keyLink } from './keys.js';
import { shortName } from './rules.js';

// How long typing must pause before the server is asked, in milliseconds, and how many clients are shown.
const [PAUSE, MOST] = [200, 10];

/** The clients that a text is found in. The text may be a secret: it is in no address of the page. */
export async function findClients(text, { limit = MOST, signal } = {}) {
  const query = new URLSearchParams({ limit });
  if (text) query.set('search', text);
  return (await get(`clients?${query}`, { signal })).clients;
}

function row({ rule, key, denied, last_seen: seen }) {
  return el('li', {}, keyLink(rule, key),
    el('span', { class: 'small quiet' }, `${shortName(rule)}, denied ${brief(denied)} in an hour, seen ${seen ? ago(seen) : '–'}`));
}

/** A field with the clients that are found below it. Arrows lead through them, Escape closes the list. */
export function clientSearch() {
  let asking = new AbortController();
  let timer = 0;
  const list = el('ul', { class: 'found', hidden: true, 'aria-label': 'Clients found' });
  const said = el('span', { class: 'hidden', role: 'status' });
  const field = el('input', { type: 'search', id: 'find', placeholder: 'Find a client', 'aria-label': 'Find a client', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off', oninput: soon });
  const form = el('form', { class: 'find', role: 'search', onsubmit: (event) => { event.preventDefault(); open(); }, onkeydown: move }, field, list, said);
  const links = () => [...list.querySelectorAll('a')];

  function close() {
    asking.abort();
    clearTimeout(timer);
    list.hidden = true;
    said.textContent = '';
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(read, PAUSE);
  }

  async function read() {
    clearTimeout(timer);
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    const text = field.value.trim();
    if (!text) {
      close();
      return;
    }
    try {
      const clients = await findClients(text, { signal });
      if (signal.aborted) return;
      put(list, clients.length > 0 ? clients.map(row) : el('li', { class: 'empty' }, 'No client of the last hour has this in its name.'));
      said.textContent = clients.length === 1 ? '1 client found' : `${clients.length} clients found`;
    } catch (problem) {
      if (problem.name === 'AbortError') return;
      put(list, el('li', {}, notice('careful', null, problem.message)));
    }
    list.hidden = false;
  }

  /** Enter leads to the only client that is found, and otherwise into the list. */
  async function open() {
    await read();
    const [first, second] = links();
    if (first && !second) first.click();
    else first?.focus();
  }

  function move(event) {
    if (event.key === 'Escape') {
      close();
      field.focus();
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || list.hidden) return;
    event.preventDefault();
    const stops = [field, ...links()];
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length].focus();
  }

  list.addEventListener('click', (event) => { if (event.target.closest('a')) { close(); field.value = ''; } });
  form.addEventListener('focusout', (event) => { if (!form.contains(event.relatedTarget)) close(); });
  return form;
}
