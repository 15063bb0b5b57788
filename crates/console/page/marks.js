// Marks in charts: where the rules changed, and where a temporary override was set, changed or removed.

import { el, visible } from './dom.js';
import { withTimes } from './format.js';

/** A mark in words. */
export function markText({ version, by, override }) {
  if (!override) return `version ${version} of the rules by ${visible(by)}`;
  return `${visible(withTimes(override.text.replaceAll('`', '')))} by ${visible(by)}`;
}

/** The marks in a legend; `show(marks)` shows the kinds that there are. */
export function markKinds() {
  const rules = el('li', { hidden: true }, el('span', { class: 'swatch change' }), 'rules changed');
  const overrides = el('li', { hidden: true }, el('span', { class: 'swatch override', 'aria-hidden': 'true' }, '▼'), 'override');
  return {
    elements: [rules, overrides],
    show(marks) {
      rules.hidden = !marks.some(({ override }) => !override);
      overrides.hidden = !marks.some(({ override }) => override);
    },
  };
}
