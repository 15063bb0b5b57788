// Asks for a temporary override. Nothing is lifted by accident: Enter in a field does not set it, and `unlimited` is
// asked for twice.

import { post } from './api.js';
import { confirm, openDialog } from './dialog.js';
import { el, notice, put, visible } from './dom.js';
import { dateTime } from './format.js';
import { overriddenBy, overrideKey } from './keys.js';
import { granted, limitText, scaled, withUnit } from './limit-text.js';
import { say } from './messages.js';
import { shortName } from './rules.js';
import { isSecret } from './session.js';
import { countsRequests, unitName, unitOf } from './unit.js';

const SPANS = [['10m', '10 minutes'], ['1h', '1 hour'], ['4h', '4 hours'], ['24h', '1 day'], ['7d', '7 days']];

/** The call for the overrides of a rule, or for one of them. */
export function overridePath(rule, key) {
  return `rules/${encodeURIComponent(rule)}/overrides${key === undefined ? '' : `/${encodeURIComponent(key)}`}`;
}

/**
 * Asks for an override of a client, whose limit is `now`. Resolves when the dialog is closed; `onDone` is called if one
 * was set.
 */
export function askOverride(rule, key, { now = limitText(rule), onDone } = {}) {
  const by = overriddenBy(rule);
  const hidesKey = by.some(isSecret);
  const such = `Any limit such as 1000/minute, or unlimited, or blocked.${countsRequests(rule) ? '' : ` The rule counts ${unitName(unitOf(rule))}.`}`;
  const client = el('input', { id: 'o-key', value: key || (by.length === 0 && overrideKey(rule)) || '', type: hidesKey && !key ? 'password' : 'text', required: true, autocomplete: 'off', spellcheck: 'false' });
  const limit = el('input', { id: 'o-limit', required: true, autofocus: true, value: scaled(now, 2) ?? '', placeholder: '1000/minute', autocomplete: 'off', spellcheck: 'false', oninput: showChoice });
  const length = el('select', { id: 'o-for' }, SPANS.map(([value, label]) => el('option', { value }, label)));
  const reason = el('input', { id: 'o-reason', maxlength: 200, autocomplete: 'off' });
  const message = el('div');
  const choices = [['×2', scaled(now, 2)], ['×10', scaled(now, 10)], ['Block', 'blocked']].filter(([, text]) => text !== null)
    .map(([label, text]) => ({ text, button: el('button', { type: 'button', onclick: () => { limit.value = text; showChoice(); } }, label) }));
  const field = (id, label, input, ...more) => el('div', { class: 'field' }, el('label', { for: id }, label), input, ...more);
  const hint = (text) => el('p', { class: 'hint' }, text);
  let close = () => {};

  function showChoice() {
    for (const { text, button } of choices) button.setAttribute('aria-pressed', String(limit.value.trim() === text));
  }

  limit.addEventListener('focus', () => limit.select());
  // The dialog opens by Enter: a second one goes on to the reason, and sets nothing.
  limit.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    if (!event.repeat) reason.focus();
  });

  async function set() {
    const body = { key: client.value, limit: limit.value.trim(), for: length.value, reason: reason.value };
    try {
      const made = await post(overridePath(rule.id), body);
      close();
      say('good', 'Override set', `${visible(made.digest ?? made.key)} ${granted(body.limit)} until ${dateTime(made.expires_at)}.`);
      onDone?.();
    } catch (problem) {
      put(message, notice('bad', 'Not set', problem.message));
    }
  }

  showChoice();
  return openDialog(`Temporary override of ${shortName(rule.id)}`, (closeDialog) => {
    close = closeDialog;
    return el('form', {
      onsubmit: async (event) => {
        event.preventDefault();
        if (limit.value.trim().toLowerCase() !== 'unlimited') await set();
        else await confirm('Lift the limit?', `${visible(client.value)} may then send as much as it wants: ${shortName(rule.id)} limits it no more until the override ends.`, 'Lift the limit', set, 'danger');
      },
    },
    field('o-key', `Client (${by.join('/') || 'all requests'})`, client, by.length > 1 && hint('The values with a / between; a / in a value is %2F, a % is %25.'), hidesKey && hint('A digest as the tables show it, or the clear value, which is stored hashed.')),
    field('o-limit', 'Limit', limit, el('div', { class: 'row suggestions', role: 'group', 'aria-label': 'Suggested limits' }, choices.map(({ button }) => button)),
      hint(scaled(now, 1) ? `It has ${withUnit(now, rule)} now. ${such}` : such)),
    field('o-for', 'For', length, hint('Then the rule’s own limit applies again.')),
    field('o-reason', 'Reason', reason, hint('For the history: who asked, which incident.')),
    message,
    el('div', { class: 'actions' },
      el('button', { type: 'button', onclick: closeDialog }, 'Cancel'),
      el('button', { type: 'submit', class: 'first' }, 'Set the override')));
  });
}
