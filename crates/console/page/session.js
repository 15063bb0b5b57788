// Who is signed in, and what the session may do.

import { ask, get, useToken } from './api.js';
import { keptDraft, keptSession } from './kept.js';

let session = null;

export const current = () => session;
export const mayWrite = () => session?.scopes.includes('write') ?? false;
export const isSecret = (attribute) => session?.secret_attributes.includes(attribute) ?? attribute === 'api_key';

/** Why this session may not change anything, or `null` if it may. */
export function whyReadOnly() {
  if (mayWrite()) return null;
  return `The token “${session?.name}” has no scope “write”: it sees everything and changes nothing. Sign in with a token that has it.`;
}

function begin(opened) {
  const { token, ...described } = opened;
  useToken(token);
  keptSession.write(token);
  session = described;
}

/** Exchanges the code of `tidegate console` for a session. A code that does not work leaves the session that there is. */
export async function signInWithCode(code) {
  begin((await ask('POST', 'console/session', { body: { code }, isAnonymous: true })).body);
}

/** Exchanges a token for a session. The token itself is not kept. */
export async function signInWithToken(token) {
  begin((await ask('POST', 'console/session', { body: {}, as: token })).body);
}

/** Goes on with the session that the tab has kept. Resolves to whether there is one that works. */
export async function resume() {
  const token = keptSession.read();
  if (!token) return false;
  useToken(token);
  try {
    session = await get('console/session');
    return true;
  } catch (problem) {
    useToken(null);
    if (problem.status === 401) keptSession.remove();
    throw problem;
  }
}

/** Asks whether the session still is one: a 401 ends it. */
export async function isAlive() {
  await get('console/session').catch(() => {});
}

/** Drops the session, after the server ended it. */
export function forget() {
  session = null;
  useToken(null);
  keptSession.remove();
}

export async function signOut() {
  await ask('DELETE', 'console/session').catch(() => {});
  keptDraft.remove();
  forget();
}
