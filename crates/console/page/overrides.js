// Temporary overrides that are in force: another limit for one client, with an end and a reason.

import { ask, get } from './api.js';
import { changeButton } from './buttons.js';
import { confirm } from './dialog.js';
import { el, panel, prose, put, visible } from './dom.js';
import { dateTime, span, unix } from './format.js';
import { takesOverrides } from './keys.js';
import { granted, withUnit } from './limit-text.js';
import { attempt, say } from './messages.js';
import { shortName } from './rules.js';
import { askOverride, overridePath } from './override-dialog.js';

/** The client of an override, as tables show it. */
export const overriddenClient = (override) => visible(override.digest ?? override.key);

/** When an override ends, in words. */
export function endOf(override) {
  const left = Math.max(0, Math.round(unix(override.expires_at) - Date.now() / 1000));
  return `ends in ${span(left)}, ${dateTime(override.expires_at)}`;
}

/** Ends an override after a question. */
export function removeButton(override, onDone) {
  const { rule, key } = override;
  const remove = attempt('The override stays', async () => {
    await ask('DELETE', overridePath(rule, key));
    say('good', 'Override removed', `${overriddenClient(override)} gets the limit of ${shortName(rule)} again.`);
    await onDone();
  });
  const question = () => confirm('Remove the override?', `${overriddenClient(override)} gets the limit of ${shortName(rule)} again, immediately.`, 'Remove', remove, 'danger');
  return changeButton('Remove', question, { kind: 'danger' });
}

/** The overrides of a rule that are in force. */
export async function readOverrides(rule) {
  return (await get(overridePath(rule))).overrides;
}

/** An override of a rule. */
export function overrideRow(override, rule, onDone) {
  return el('li', {},
    el('div', { class: 'row' },
      el('span', {}, el('b', { class: 'mono' }, el('bdi', {}, overriddenClient(override))), ' ', granted(withUnit(override.limit, rule))),
      el('div', { class: 'actions' }, removeButton(override, onDone))),
    el('div', { class: 'small quiet' }, endOf(override), override.by && `, set by ${override.by}`, override.reason && [': ', el('bdi', {}, visible(override.reason))]));
}

/** A panel with the temporary overrides of a rule. */
export function overrideList(id, rule) {
  const list = el('div');
  async function read() {
    try {
      const overrides = await readOverrides(id);
      put(list, overrides.length === 0
        ? el('p', { class: 'empty' }, 'None.')
        : el('ul', { class: 'timeline' }, overrides.map((override) => overrideRow(override, rule, read))));
    } catch (problem) {
      put(list, el('p', { class: 'empty' }, prose(problem.message)));
    }
  }
  const add = takesOverrides(rule) ? changeButton('Add', () => askOverride(rule, '', { onDone: read })) : null;
  read();
  return panel('Temporary overrides', add, list);
}
