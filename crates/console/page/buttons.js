// Buttons that change something. Where that is not possible they stay reachable and say why.

import { el } from './dom.js';
import { openDialog } from './dialog.js';
import { whyReadOnly } from './session.js';

let origin = {};

/** Sets where the rules come from, as the status says it. */
export function setOrigin(rules) {
  origin = rules;
}

/** The file or folder that the rules come from, if they do. */
export const rulesFile = () => origin.file ?? null;

/** Why rules are changed elsewhere, or `null`. */
export function whyRulesComeFromElsewhere() {
  if (origin.source === 'xds') return `These rules come from the management server ${origin.server}; change them there.`;
  if (origin.file) return `The rules come from the ${origin.source} ${origin.file}. Change them there: the server reads it again when it changes.`;
  return null;
}

/** Why rules cannot be changed here, or `null`. */
export const whyRulesAreFixed = () => whyRulesComeFromElsewhere() ?? whyReadOnly();

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
      return openDialog('Not possible here', (close) => [
        el('p', {}, now),
        el('div', { class: 'actions' }, el('button', { type: 'button', onclick: close }, 'Close')),
      ]);
    },
  }, label);
  return button;
}
