// Editing a rule: checked by the server while it is typed, compared before it is applied, and never over another
// change that came in between.

import { ask } from '../api.js';
import { rulesFile, whyRulesAreFixed } from '../buttons.js';
import { openDialog } from '../dialog.js';
import { between, isSame } from '../diff.js';
import { el, notice, put } from '../dom.js';
import { dateTime } from '../format.js';
import { readStatus } from '../health.js';
import { attempt, say } from '../messages.js';
import { go, link } from '../router.js';
import { validate, yamlOf } from '../yaml.js';

// How long typing must pause before the text is checked, in milliseconds.
const PAUSE = 250;

export async function showRuleEdit(main, id) {
  const path = `rules/${encodeURIComponent(id)}`;
  const [read] = await Promise.all([ask('GET', path), readStatus()]);
  let base = { etag: read.etag, yaml: await yamlOf(id, read.body) };
  let checked = null;
  let checking = new AbortController();
  let timer = 0;

  const lines = el('div', { class: 'lines', 'aria-hidden': 'true' });
  const text = el('textarea', { id: 'rule-text', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', wrap: 'off', 'aria-describedby': 'rule-state', oninput: changed });
  text.value = base.yaml;
  const state = el('p', { id: 'rule-state', class: 'small quiet', role: 'status' });
  const problems = el('ul', { class: 'problems' });
  const conflict = el('div');
  const apply = el('button', { type: 'button', class: 'first', onclick: attempt('The rule was not changed', review) }, 'Review changes');
  const fixed = whyRulesAreFixed();

  put(main,
    el('div', { class: 'crumb' }, el('a', { href: '#/' }, 'Overview'), ' › ', el('a', { href: link(['rules', id]) }, id), ' › Edit'),
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, `Edit ${id}`),
      el('div', { class: 'actions' }, el('a', { class: 'button', href: link(['rules', id]) }, 'Cancel'), !fixed && apply)),
    el('div', { class: 'stack' },
      fixed && notice('careful', rulesFile() ? 'Rules come from a file' : 'Read-only', fixed),
      conflict,
      el('section', { class: 'panel', 'aria-label': 'The rule as YAML' },
        el('label', { for: 'rule-text' }, 'The rule as YAML'),
        el('div', { class: 'editor' }, lines, text), state, problems,
        el('p', { class: 'hint' }, 'Comments are not kept: use “description”. The change applies to all requests immediately.'))));
  if (fixed) text.readOnly = true;
  check();

  function changed() {
    drawLines([]);
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE);
  }

  function drawLines(found) {
    const count = text.value.split('\n').length;
    text.rows = Math.max(8, count);
    const kinds = new Map(found.map((problem) => [problem.line, problem.severity === 'error' ? 'bad' : 'careful']));
    put(lines, Array.from({ length: count }, (_, index) => {
      const kind = kinds.get(index + 1);
      return [kind ? el('span', { class: kind }, `● ${index + 1}`) : String(index + 1), '\n'];
    }));
  }

  async function check() {
    checking.abort();
    checking = new AbortController();
    const sent = text.value;
    try {
      const answer = await validate(id, sent, checking.signal);
      checked = { ...answer, text: sent };
    } catch (problem) {
      if (problem.name === 'AbortError') return;
      checked = { valid: false, problems: [{ severity: 'error', message: problem.message }], text: sent };
    }
    showProblems();
  }

  function showProblems() {
    const found = checked.problems;
    drawLines(found);
    const errors = found.filter((problem) => problem.severity === 'error').length;
    text.setAttribute('aria-invalid', String(errors > 0));
    state.textContent = errors > 0 ? `${errors} ${errors === 1 ? 'problem' : 'problems'}: nothing is applied until they are fixed.`
      : isSame(checked.yaml ?? '', base.yaml) ? 'Valid. No changes yet.' : 'Valid.';
    put(problems, found.map((problem) => el('li', { class: problem.severity === 'error' ? 'bad' : 'careful' },
      el('button', { type: 'button', onclick: () => jump(problem) },
        el('b', {}, problem.line ? `Line ${problem.line}` : 'The rule'), el('span', {}, problem.field ? `${problem.field}: ${problem.message}` : problem.message)))));
    apply.setAttribute('aria-disabled', String(errors > 0));
  }

  function jump(problem) {
    const before = text.value.split('\n').slice(0, (problem.line ?? 1) - 1).join('\n').length;
    const start = before + (problem.line > 1 ? 1 : 0) + (problem.column ?? 1) - 1;
    text.focus();
    text.setSelectionRange(start, start);
  }

  async function review() {
    if (checked?.text !== text.value) await check();
    if (!checked.valid) {
      problems.querySelector('button')?.focus();
      return;
    }
    if (isSame(checked.yaml, base.yaml)) {
      say('', 'Nothing to apply', 'The rule is as it was.');
      return;
    }
    const { rule, yaml } = checked;
    await openDialog(`Apply to ${id}?`, (close) => [
      el('p', { class: 'quiet small' }, 'This is what changes. It applies to all requests immediately; “Changes” can roll it back.'),
      between(base.yaml, yaml),
      el('div', { class: 'actions' },
        el('button', { type: 'button', onclick: close }, 'Back to the text'),
        el('button', { type: 'button', class: 'first', autofocus: true, onclick: () => { close(); return send(rule); } }, 'Apply')),
    ], { isWide: true });
  }

  async function send(rule) {
    try {
      await ask('PUT', path, { body: rule, ifMatch: base.etag });
      say('good', `${id} was changed`, 'It applies now. “Changes” has the version before.');
      go(['rules', id]);
    } catch (problem) {
      if (problem.status === 412 || problem.status === 404) await explainConflict(problem);
      else put(conflict, notice('bad', 'Nothing was changed', problem.message));
    }
  }

  /** Another change came first: shows it, and lets the reader decide. */
  async function explainConflict(problem) {
    const history = await ask('GET', 'rules/history').then(({ body }) => body.history, () => []);
    const last = history[0];
    const who = last ? ` by ${last.by}, ${dateTime(last.at)} (version ${last.version})` : '';
    const now = await ask('GET', path).catch(() => null);
    if (!now) {
      put(conflict, notice('bad', `Conflict: ${id} was removed meanwhile${who}`, 'Nothing was changed. Your text is still below: copy it if you need it.'));
      return;
    }
    const theirs = await yamlOf(id, now.body);
    put(conflict, notice('bad', `Conflict: ${id} was changed meanwhile${who}`,
      el('p', {}, 'Nothing was changed by you, and your text is still below. This is what the other change did:'),
      between(base.yaml, theirs),
      el('div', { class: 'row' },
        el('button', { type: 'button', onclick: () => { base = { etag: now.etag, yaml: theirs }; put(conflict); review(); } }, 'Compare my text with the new rule'),
        el('button', { type: 'button', onclick: () => { base = { etag: now.etag, yaml: theirs }; text.value = theirs; put(conflict); check(); } }, 'Discard my text, take the new rule'))));
    conflict.querySelector('button')?.focus();
  }

  return () => {
    clearTimeout(timer);
    checking.abort();
  };
}
