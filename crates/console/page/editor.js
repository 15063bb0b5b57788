// The text of a rule in YAML, with line numbers, checked by the server while it is typed.

import { el, prose, put } from './dom.js';
import { counted } from './format.js';

// How long typing must pause before the text is checked, in milliseconds.
const PAUSE = 250;

/**
 * An editor of a text. `validate(text, signal)` asks the server; `isUnchanged(answer)` says whether there is nothing
 * to apply; `onText(text)` is called with each change.
 */
export function ruleEditor(first, { validate, isUnchanged = () => false, onText = () => {} }) {
  let checked = null;
  let checking = new AbortController();
  let timer = 0;
  const lines = el('div', { class: 'lines', 'aria-hidden': 'true' });
  const text = el('textarea', { id: 'rule-text', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', wrap: 'off', 'aria-describedby': 'rule-state', oninput: changed });
  text.value = first;
  const state = el('p', { id: 'rule-state', class: 'small quiet', role: 'status' });
  const problems = el('ul', { class: 'problems' });
  const element = el('section', { class: 'panel', 'aria-label': 'The rule as YAML' },
    el('label', { for: 'rule-text' }, 'The rule as YAML'),
    el('div', { class: 'editor' }, lines, text), state, problems,
    el('p', { class: 'hint' }, 'Comments are not kept: use “description”. A rule counts requests unless “unit” says what else, such as tokens. The change applies to all requests immediately.'));

  function changed() {
    drawLines([]);
    onText(text.value);
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

  /** Asks the server about the text as it is now. */
  async function check() {
    clearTimeout(timer);
    checking.abort();
    checking = new AbortController();
    const sent = text.value;
    try {
      checked = { ...await validate(sent, checking.signal), text: sent };
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
    state.textContent = errors > 0 ? `${counted(errors, 'problem')}: nothing is applied until ${errors === 1 ? 'it is' : 'they are'} fixed.`
      : isUnchanged(checked) ? 'Valid. No changes yet.' : 'Valid.';
    put(problems, found.map((problem) => el('li', { class: problem.severity === 'error' ? 'bad' : 'careful' },
      el('button', { type: 'button', onclick: () => jump(problem) },
        el('b', {}, problem.line ? `Line ${problem.line}` : 'The rule'), el('span', {}, problem.field && `${problem.field}: `, prose(problem.message))))));
    element.dispatchEvent(new CustomEvent('checked', { detail: errors }));
  }

  function jump(problem) {
    const before = text.value.split('\n').slice(0, (problem.line ?? 1) - 1).join('\n').length;
    const start = before + (problem.line > 1 ? 1 : 0) + (problem.column ?? 1) - 1;
    text.focus();
    text.setSelectionRange(start, start);
  }

  return {
    element,
    check,
    text: () => text.value,
    set(next) { text.value = next; onText(next); return check(); },
    makeReadOnly() { text.readOnly = true; },
    /** The answer about the text as it is now; if it has errors, the focus goes to the first. */
    async answer() {
      if (checked?.text !== text.value) await check();
      if (!checked.valid) problems.querySelector('button')?.focus();
      return checked;
    },
    stop() {
      clearTimeout(timer);
      checking.abort();
    },
  };
}
