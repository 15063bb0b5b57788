// Editing a rule: checked by the server while it is typed, compared before it is applied, and never over another
// change that came in between. The text is kept until it is applied or cancelled.

import { ask } from '../api.js';
import { whyRulesAreFixed } from '../buttons.js';
import { openDialog } from '../dialog.js';
import { between, isSame } from '../diff.js';
import { el, notice, put } from '../dom.js';
import { ruleEditor } from '../editor.js';
import { dateTime } from '../format.js';
import { readStatus } from '../health.js';
import { keptDraft } from '../kept.js';
import { attempt, say } from '../messages.js';
import { go, link } from '../router.js';
import { validate, yamlOf } from '../yaml.js';

export async function showRuleEdit(main, id) {
  const path = `rules/${encodeURIComponent(id)}`;
  const draft = keptDraft.read(id);
  const [read] = await Promise.all([ask('GET', path).catch((problem) => { if (draft && problem.status === 404) return null; throw problem; }), readStatus()]);
  let base = draft ?? { etag: read.etag, yaml: await yamlOf(id, read.body) };
  const fixed = whyRulesAreFixed();
  const editor = ruleEditor(draft?.text ?? base.yaml, {
    validate: (text, signal) => validate(id, text, signal),
    isUnchanged: (answer) => isSame(answer.yaml ?? '', base.yaml),
    onText: keep,
  });
  const conflict = el('div');
  const back = el('div');
  const apply = el('button', { type: 'button', class: 'first', onclick: attempt('The rule was not changed', review) }, 'Review changes');
  editor.element.addEventListener('checked', ({ detail: errors }) => apply.setAttribute('aria-disabled', String(errors > 0)));

  put(main,
    el('div', { class: 'crumb' }, el('a', { href: '#/rules' }, 'Rules'), ' › ', el('a', { href: link(['rules', id]) }, id), ' › Edit'),
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, `Edit ${id}`),
      el('div', { class: 'actions' }, el('a', { class: 'button', href: link(['rules', id]), onclick: () => keptDraft.remove() }, 'Cancel'), !fixed && apply)),
    el('div', { class: 'stack' },
      fixed && notice('careful', 'Read-only', fixed),
      back, conflict, editor.element));
  if (fixed) editor.makeReadOnly();
  if (draft) {
    put(back, notice('', 'Your text is back', el('p', {}, 'It was not applied yet. It is kept in this tab until you apply or cancel it.'),
      el('div', { class: 'row' }, el('button', { type: 'button', onclick: discard }, 'Discard it'))));
    if (read?.etag !== base.etag) await explainConflict();
  }
  if (!fixed) editor.check();

  /** Keeps the text with what it is based on, unless it says nothing new. */
  function keep(text) {
    if (isSame(text, base.yaml)) keptDraft.remove();
    else keptDraft.write({ id, etag: base.etag, yaml: base.yaml, text });
  }

  async function discard() {
    keptDraft.remove();
    editor.stop();
    await showRuleEdit(main, id);
  }

  async function review() {
    const checked = await editor.answer();
    if (!checked.valid) return;
    if (isSame(checked.yaml, base.yaml)) {
      say('', 'Nothing to apply', 'The rule is as it was.');
      return;
    }
    await openDialog(`Apply to ${id}?`, (close) => [
      el('p', { class: 'quiet small' }, 'This is what changes. It applies to all requests immediately; “Changes” can roll it back.'),
      between(base.yaml, checked.yaml),
      el('div', { class: 'actions' },
        el('button', { type: 'button', onclick: close }, 'Back to the text'),
        el('button', { type: 'button', class: 'first', autofocus: true, onclick: () => { close(); return send(checked.rule); } }, 'Apply')),
    ], { isWide: true });
  }

  async function send(rule) {
    try {
      await ask('PUT', path, { body: rule, ifMatch: base.etag });
      keptDraft.remove();
      say('good', `${id} was changed`, 'It applies now. “Changes” has the version before.');
      go(['rules', id]);
    } catch (problem) {
      if (problem.status === 412 || problem.status === 404) await explainConflict();
      else put(conflict, notice('bad', 'Nothing was changed', problem.message));
    }
  }

  /** Another change came first: shows it, and lets the reader decide. */
  async function explainConflict() {
    const history = await ask('GET', 'rules/history').then(({ body }) => body.history, () => []);
    const last = history[0];
    const who = last ? ` by ${last.by}, ${dateTime(last.at)} (version ${last.version})` : '';
    const now = await ask('GET', path).catch(() => null);
    if (!now) {
      put(conflict, notice('bad', `Conflict: ${id} was removed meanwhile${who}`, 'Nothing was changed. Your text is still below: copy it if you need it.'));
      return;
    }
    const theirs = await yamlOf(id, now.body);
    const take = () => { base = { etag: now.etag, yaml: theirs }; put(conflict); };
    put(conflict, notice('bad', `Conflict: ${id} was changed meanwhile${who}`,
      el('p', {}, 'Nothing was changed by you, and your text is still below. This is what the other change did:'),
      between(base.yaml, theirs),
      el('div', { class: 'row' },
        el('button', { type: 'button', onclick: () => { take(); keep(editor.text()); review(); } }, 'Compare my text with the new rule'),
        el('button', { type: 'button', onclick: () => { take(); editor.set(theirs); } }, 'Discard my text, take the new rule'))));
    conflict.querySelector('button')?.focus();
  }

  return () => editor.stop();
}
