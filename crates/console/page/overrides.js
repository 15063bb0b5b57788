// Temporary overrides: another limit for one client, with an end and a reason.

import { ask, get, post } from './api.js';
import { changeButton } from './buttons.js';
import { confirm, openDialog } from './dialog.js';
import { el, notice, panel, put, visible } from './dom.js';
import { dateTime, span, unix } from './format.js';
import { attempt, say } from './messages.js';
import { isSecret } from './session.js';

const SPANS = [['10m', '10 minutes'], ['1h', '1 hour'], ['4h', '4 hours'], ['24h', '1 day'], ['7d', '7 days']];

const pathOf = (rule, key) => `rules/${encodeURIComponent(rule)}/overrides${key === undefined ? '' : `/${encodeURIComponent(key)}`}`;

/** The attribute that overrides of a rule are by: the first of `per`. */
export function overriddenBy(rule) {
  return Array.isArray(rule?.per) ? rule.per[0] : rule?.per;
}

/** Asks for an override of a client. Resolves when the dialog is closed; `onDone` is called if one was set. */
export function askOverride(rule, key, onDone) {
  const by = overriddenBy(rule);
  const client = el('input', { id: 'o-key', value: key ?? '', type: isSecret(by) && !key ? 'password' : 'text', required: true, autocomplete: 'off', spellcheck: 'false' });
  const limit = el('input', { id: 'o-limit', required: true, value: 'unlimited', list: 'o-limits', autocomplete: 'off', spellcheck: 'false' });
  const length = el('select', { id: 'o-for' }, SPANS.map(([value, label]) => el('option', { value }, label)));
  const reason = el('input', { id: 'o-reason', maxlength: 200, autocomplete: 'off' });
  const message = el('div');
  const field = (id, label, input, hint) => el('div', { class: 'field' }, el('label', { for: id }, label), input, hint && el('p', { class: 'hint' }, hint));
  return openDialog(`Temporary override of ${rule.id}`, (close) => el('form', {
    onsubmit: async (event) => {
      event.preventDefault();
      const body = { key: client.value, limit: limit.value.trim(), for: length.value, reason: reason.value };
      try {
        const set = await post(pathOf(rule.id), body);
        close();
        say('good', 'Override set', `${visible(set?.key ?? client.value)} has ${body.limit} until ${set?.expires_at ? dateTime(set.expires_at) : 'the end'}.`);
        onDone?.();
      } catch (problem) {
        put(message, notice('bad', 'Not set', problem.message));
      }
    },
  },
  field('o-key', `Client (${by})`, client, isSecret(by) ? 'A digest as the tables show it, or the clear value, which is stored hashed.' : undefined),
  el('datalist', { id: 'o-limits' }, ['unlimited', 'blocked', '1000/minute'].map((value) => el('option', { value }))),
  field('o-limit', 'Limit', limit, 'Any limit such as 1000/minute, or unlimited, or blocked.'),
  field('o-for', 'For', length, 'When it ends, the own limit of the rule applies again.'),
  field('o-reason', 'Reason', reason, 'For the history: who asked, which incident.'),
  message,
  el('div', { class: 'actions' },
    el('button', { type: 'button', onclick: close }, 'Cancel'),
    el('button', { type: 'submit', class: 'first', autofocus: true }, 'Set the override'))));
}

/** Ends an override after a question. */
export function removeButton(rule, key, onDone) {
  const remove = attempt('The override stays', async () => {
    await ask('DELETE', pathOf(rule, key));
    say('good', 'Override removed', 'The own limit of the rule applies again.');
    onDone();
  });
  const question = () => confirm('Remove the override?', `${visible(key)} gets the own limit of ${rule} again, immediately.`, 'Remove', remove, 'danger');
  return changeButton('Remove', question, { kind: 'danger' });
}

/** The overrides of a rule that are in force. */
export async function readOverrides(rule) {
  const answer = await get(pathOf(rule));
  return answer.overrides ?? [];
}

export function overrideRow(rule, override, onDone) {
  const left = unix(override.expires_at) - Date.now() / 1000;
  return el('li', {},
    el('div', { class: 'row' },
      el('b', { class: 'mono' }, el('bdi', {}, visible(override.digest ?? override.key))), ' gets ', el('b', {}, override.limit),
      el('div', { class: 'actions' }, removeButton(rule, override.key, onDone))),
    el('div', { class: 'small quiet' }, `ends in ${span(Math.max(0, Math.round(left)))}, ${dateTime(override.expires_at)}`,
      override.by && `, set by ${override.by}`, override.reason && [': ', el('bdi', {}, visible(override.reason))]));
}

/** A panel with the temporary overrides of a rule. */
export function overrideList(id, rule) {
  const list = el('div');
  async function read() {
    try {
      const overrides = await readOverrides(id);
      put(list, overrides.length === 0
        ? el('p', { class: 'empty' }, 'None.')
        : el('ul', { class: 'timeline' }, overrides.map((override) => overrideRow(id, override, read))));
    } catch (problem) {
      put(list, el('p', { class: 'empty' }, problem.message));
    }
  }
  const add = overriddenBy(rule) ? changeButton('Add', () => askOverride(rule, '', read)) : null;
  read();
  return panel('Temporary overrides', add, list);
}
