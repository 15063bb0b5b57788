// Adding a rule: a name, and a text that the server checks while it is typed.

import { ask } from '../api.js';
import { whyRulesAreFixed } from '../buttons.js';
import { openDialog } from '../dialog.js';
import { el, notice, put } from '../dom.js';
import { ruleEditor } from '../editor.js';
import { readStatus } from '../health.js';
import { keptDraft } from '../kept.js';
import { attempt, say } from '../messages.js';
import { go } from '../router.js';
import { validate, yamlView } from '../yaml.js';

const TEMPLATE = `id: new-rule
description: What it is for.
match:
  path: [/v1/**]
per: [user_id]
missing: share
limit: 100/minute
# It denies nothing until the mode is enforce: look at what it would deny first.
mode: shadow
`;

/** The id in the text, by which the server is asked about it. */
const idOf = (text) => /^id:\s*["']?([^\s"'#]+)/m.exec(text)?.[1] ?? 'new-rule';

export async function showRuleAdd(main) {
  await readStatus();
  const fixed = whyRulesAreFixed();
  const draft = keptDraft.any()?.isNew ? keptDraft.any() : null;
  const message = el('div');
  const editor = ruleEditor(draft?.text ?? TEMPLATE, {
    validate: (text, signal) => validate(idOf(text), text, signal),
    onText: (text) => keptDraft.write({ isNew: true, id: '', text }),
  });
  const add = el('button', { type: 'button', class: 'first', onclick: attempt('The rule was not added', review) }, 'Review the rule');
  editor.element.addEventListener('checked', ({ detail: errors }) => add.setAttribute('aria-disabled', String(errors > 0)));

  put(main,
    el('div', { class: 'crumb' }, el('a', { href: '#/rules' }, 'Rules'), ' › Add'),
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, 'Add a rule'),
      el('div', { class: 'actions' }, el('a', { class: 'button', href: '#/rules', onclick: () => keptDraft.remove() }, 'Cancel'), !fixed && add)),
    el('div', { class: 'stack' },
      fixed && notice('careful', 'Read-only', fixed),
      draft && notice('', 'Your text is back', 'It was not added yet. It is kept in this tab until you add or cancel it.'),
      message, editor.element));
  if (fixed) editor.makeReadOnly();
  if (!fixed) editor.check();

  async function review() {
    const checked = await editor.answer();
    if (!checked.valid) return;
    const { rule, yaml, promises } = checked;
    await openDialog(`Add ${rule.id}?`, (close) => [
      el('p', { class: 'quiet small' }, rule.mode === 'shadow' ? 'It is added in shadow mode: it counts, and denies nothing.' : 'It applies to all requests immediately; “Changes” can roll it back.'),
      (promises?.limit ?? []).map((promise) => el('p', { class: 'small' }, `Worst case: ${promise}`)),
      yamlView(yaml),
      el('div', { class: 'actions' },
        el('button', { type: 'button', onclick: close }, 'Back to the text'),
        el('button', { type: 'button', class: 'first', autofocus: true, onclick: () => { close(); return send(rule); } }, 'Add')),
    ].flat(), { isWide: true });
  }

  async function send(rule) {
    try {
      await ask('POST', 'rules', { body: rule });
      keptDraft.remove();
      say('good', `${rule.id} was added`, 'It is in force now.');
      go(['rules', rule.id]);
    } catch (problem) {
      put(message, notice('bad', 'Nothing was added', problem.message));
    }
  }

  return () => editor.stop();
}
