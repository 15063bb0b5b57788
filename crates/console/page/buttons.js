// Buttons that change something. With a token that may not, they stay reachable and say why.

import { el } from './dom.js';
import { openDialog } from './dialog.js';
import { whyReadOnly } from './session.js';

let fileOfRules = null;

/** Sets the file that the rules come from, if they do; then they cannot be changed here. */
export function setRulesFile(file) {
  fileOfRules = file;
}

export function rulesFile() {
  return fileOfRules;
}

/** Why rules cannot be changed here, or `null`. */
export function whyRulesAreFixed() {
  const why = whyReadOnly();
  if (why) return why;
  return fileOfRules
    ? `The rules come from the file ${fileOfRules}. Change them there: the server reads the file again when it changes.`
    : null;
}

/** A button for a change. `why()` says why the change is not possible, or is `null`. */
export function changeButton(label, act, { kind = '', why = whyReadOnly, ...attributes } = {}) {
  const reason = why();
  const button = el('button', {
    type: 'button',
    class: kind || undefined,
    'aria-disabled': reason ? 'true' : undefined,
    title: reason ?? undefined,
    ...attributes,
    onclick: (event) => {
      const now = why();
      if (!now) return act(event);
      event.preventDefault();
      return openDialog('Not with this sign-in', (close) => [
        el('p', {}, now),
        el('div', { class: 'actions' }, el('button', { type: 'button', onclick: close }, 'Close')),
      ]);
    },
  }, label);
  return button;
}
