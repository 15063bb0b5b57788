// Modal dialogs. The browser keeps the focus inside; when one closes, the focus returns to where it was.

import { el } from './dom.js';

let count = 0;

/** Opens a dialog. `build(close)` returns its content. Resolves when it is closed. */
export function openDialog(title, build, { isWide = false } = {}) {
  const opener = document.activeElement;
  const id = `dialog-${(count += 1)}`;
  const dialog = el('dialog', { 'aria-labelledby': id, class: isWide ? 'wide' : undefined });
  const close = () => dialog.close();
  dialog.append(el('h2', { id }, title), ...[build(close)].flat());
  document.body.append(dialog);
  dialog.showModal();
  (dialog.querySelector('[autofocus]') ?? dialog.querySelector('input, select, textarea, button'))?.focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      if (opener?.isConnected) opener.focus();
      resolve();
    });
  });
}

/** Asks before something is done that cannot be undone. The focus is on *Cancel*: Enter twice does nothing. */
export function confirm(title, text, action, act, kind = 'first') {
  return openDialog(title, (close) => [
    el('p', {}, text),
    el('div', { class: 'actions' },
      el('button', { type: 'button', autofocus: true, onclick: close }, 'Cancel'),
      el('button', { type: 'button', class: kind, onclick: async () => { close(); await act(); } }, action)),
  ]);
}
