// Signing in: by the code of `tidegate console`, or with a token that is typed in.

import { el, notice, put } from '../dom.js';
import { signInWithCode, signInWithToken } from '../session.js';

/** Shows the form. `onSignedIn` is called when it worked. `why` is shown above it. */
export function showSignIn(main, onSignedIn, why) {
  const message = el('div', { class: 'field' }, why && notice('careful', null, why));
  const token = el('input', { id: 'token', type: 'password', autocomplete: 'off', spellcheck: 'false', required: true, autofocus: true });
  const form = el('form', {
    onsubmit: async (event) => {
      event.preventDefault();
      try {
        const secret = token.value.trim();
        token.value = '';
        await signInWithToken(secret);
        onSignedIn();
      } catch (problem) {
        put(message, notice('bad', 'Not signed in', problem.message));
        token.focus();
      }
    },
  },
  el('div', { class: 'field' },
    el('label', { for: 'token' }, 'Token'),
    token,
    el('p', { class: 'hint' }, 'With the scope “read” to look, “write” to change. It is exchanged for a session of 12 hours, which this tab keeps, and is itself kept nowhere.')),
  el('button', { type: 'submit', class: 'first' }, 'Sign in'));
  put(main, el('div', { class: 'sign-in' },
    el('div', { class: 'brand' }, el('img', { src: 'icon.svg', alt: '' }), el('h1', {}, 'Tidegate')),
    message,
    el('section', { class: 'panel', 'aria-label': 'Sign in' }, form),
    el('p', { class: 'hint' }, 'On the machine of the server, ', el('code', {}, 'tidegate console'), ' signs you in without a token to type.')));
  token.focus();
}

/** Takes the code out of the address, and signs in with it. Resolves to whether it worked, or why not. */
export async function signInFromAddress() {
  const found = /^#code=([A-Za-z0-9]+)$/.exec(location.hash);
  if (!found) return { isIn: false };
  history.replaceState(null, '', location.pathname);
  try {
    await signInWithCode(found[1]);
    return { isIn: true };
  } catch (problem) {
    return { isIn: false, why: problem.message };
  }
}
