// How current the numbers of a page are, as a badge, and which window is shown.

import { WINDOWS } from './activity.js';
import { el } from './dom.js';

const KNOWN = { live: ['good', '● live'], paused: ['careful', 'paused'], off: ['careful', 'activity is off'], '': ['', 'every 15 s'] };

export function stateBadge() {
  const element = el('span', { class: 'badge' }, 'loading');
  return {
    element,
    show(text) {
      const [kind, word] = KNOWN[text] ?? ['bad', text.replaceAll('`', '')];
      element.className = `badge ${kind}`;
      element.textContent = word;
    },
  };
}

/** Buttons for the windows. `show(chosen)` marks one. */
export function windowChoice(choose) {
  const buttons = WINDOWS.map((window) => el('button', { type: 'button', onclick: () => choose(window) }, window.label));
  return {
    element: el('div', { class: 'choices', role: 'group', 'aria-label': 'Window' }, buttons),
    show: (chosen) => WINDOWS.forEach((window, index) => buttons[index].setAttribute('aria-pressed', String(window === chosen))),
  };
}
