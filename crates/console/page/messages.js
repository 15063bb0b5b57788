// Short messages at the corner of the page, which assistive technology reads out.

import { el, notice, prose } from './dom.js';

const SHOWN_FOR = 8_000;

export function say(kind, title, text) {
  const message = notice(kind, title, text && el('span', {}, prose(text)));
  message.removeAttribute('role');
  document.getElementById('messages').append(message);
  setTimeout(() => message.remove(), SHOWN_FOR);
}

/** Runs an action of a button, and shows why it failed if it does. */
export function attempt(title, act) {
  return async (event) => {
    event?.preventDefault?.();
    try {
      await act(event);
    } catch (error) {
      say('bad', title, error.message);
    }
  };
}
