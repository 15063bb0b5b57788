// The form for the attributes of a request. Values of secret attributes are hidden, and never in the address.

import { el, put } from './dom.js';
import { hasFormOfDigest } from './keys.js';
import { isSecret } from './session.js';

// How many names are suggested.
const MOST = 200;

const KNOWN = ['user_id', 'api_key', 'ip', 'tier', 'method', 'path', 'host', 'header.x-team'];

/** A form of names and values. `values()` returns what was entered, `fill(values)` replaces it. */
export function attributeForm(given, names) {
  const rows = [];
  const grid = el('div', { class: 'attributes' });
  const known = el('datalist', { id: 'attribute-names' }, [...new Set([...KNOWN, ...names])].slice(0, MOST).map((name) => el('option', { value: name })));

  function add(name = '', value = '') {
    const number = rows.length + 1;
    const nameField = el('input', { 'aria-label': `Attribute ${number}, name`, list: 'attribute-names', value: name, placeholder: 'user_id', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off' });
    const valueField = el('input', { 'aria-label': `Attribute ${number}, value`, value, autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off' });
    // A digest may be seen.
    const hide = () => { valueField.type = isSecret(nameField.value.trim()) && !hasFormOfDigest(valueField.value) ? 'password' : 'text'; };
    nameField.addEventListener('input', hide);
    valueField.addEventListener('input', hide);
    hide();
    const row = { nameField, valueField };
    const remove = el('button', { type: 'button', class: 'plain', 'aria-label': `Remove attribute ${number}`, onclick: () => { rows.splice(rows.indexOf(row), 1); draw(); grid.querySelector('input')?.focus(); } }, '✕');
    row.parts = [nameField, valueField, remove];
    rows.push(row);
    draw();
    return row;
  }

  function draw() {
    put(grid, rows.map((row) => row.parts));
  }

  function fill(values) {
    rows.length = 0;
    for (const [name, value] of Object.entries(values)) add(name, value);
    if (rows.length === 0) add();
  }

  fill(given);
  return {
    element: el('div', {}, grid, known, el('button', { type: 'button', class: 'plain', onclick: () => add().nameField.focus() }, '+ Add an attribute')),
    fill,
    values() {
      const filled = rows.map(({ nameField, valueField }) => [nameField.value.trim(), valueField.value]);
      return Object.fromEntries(filled.filter(([name, value]) => name && value !== ''));
    },
  };
}
