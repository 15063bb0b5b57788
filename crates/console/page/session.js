// Who is signed in, and what the token may do.

import { ask, get, useToken } from './api.js';

let session = null;

export const current = () => session;
export const mayWrite = () => session?.scopes.includes('write') ?? false;
export const isSecret = (attribute) => session?.secret_attributes.includes(attribute) ?? attribute === 'api_key';

/** Why this token may not change anything, or `null` if it may. */
export function whyReadOnly() {
  if (mayWrite()) return null;
  return `The token “${session?.name}” has no scope “write”: it sees everything and changes nothing. Sign in with a token that has it.`;
}

/** Exchanges the code of `tidegate console` for a session. */
export async function signInWithCode(code) {
  // A code that does not work leaves the session that there is.
  const { body } = await ask('POST', 'console/session', { body: { code }, isAnonymous: true });
  useToken(body.token);
  session = { ...body, token: undefined };
}

export async function signInWithToken(token) {
  useToken(token);
  try {
    session = await get('console/session');
  } catch (problem) {
    useToken(null);
    throw problem;
  }
  if (!session.scopes.includes('read') && !session.scopes.includes('write')) {
    const { name } = session;
    forget();
    throw new Error(`the token “${name}” may only check requests; the console needs the scope “read”`);
  }
}

/** Drops the token, after the server ended it. */
export function forget() {
  session = null;
  useToken(null);
}

export async function signOut() {
  await ask('DELETE', 'console/session').catch(() => {});
  forget();
}
