// Calls the server with the token of the session. Every failure is a `Problem` with a text for people.

const root = new URL('../v1/', document.baseURI);

let token = null;
let onEnd = () => {};

/** Sets the token of all further calls: that of a session. */
export function useToken(secret) {
  token = secret;
}

/** Sets what happens when the server no longer accepts the token. */
export function whenSessionEnds(act) {
  onEnd = act;
}

export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? `the server answered ${status}`);
    this.status = status;
    this.body = body ?? {};
  }
}

function headers(more = {}, secret = token) {
  return {
    accept: 'application/json, application/problem+json',
    ...(secret ? { authorization: `Bearer ${secret}` } : {}),
    ...more,
  };
}

async function send(path, options) {
  try {
    return await fetch(new URL(path, root), { cache: 'no-store', credentials: 'omit', redirect: 'error', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { detail: 'the server does not answer; is it running, and is the network up?' });
  }
}

/** Makes a call, `as` another token, or without one if it `isAnonymous`. Resolves to `{status, body, etag}`. */
export async function ask(method, path, { body, ifMatch, signal, as, isAnonymous = false } = {}) {
  const secret = isAnonymous ? null : as ?? token;
  const reply = await send(path, {
    method,
    signal,
    headers: headers({
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(ifMatch ? { 'if-match': ifMatch } : {}),
    }, secret),
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await reply.text();
  let parsed = null;
  try {
    parsed = text ? JSON.parse(text) : null;
  } catch {
    throw new Problem(reply.status, { detail: 'the answer is not JSON; is there a proxy in between?' });
  }
  if (reply.ok) return { status: reply.status, body: parsed, etag: reply.headers.get('etag') };
  if (reply.status === 401 && secret && secret === token) onEnd(parsed?.detail);
  throw new Problem(reply.status, parsed);
}

export async function get(path, options) {
  return (await ask('GET', path, options)).body;
}

export async function post(path, body, options) {
  return (await ask('POST', path, { ...options, body })).body;
}

/** The readiness of the server: its body says what is wrong, whatever its status is. */
export async function readiness() {
  const reply = await send('../readyz', {});
  return reply.json();
}

/** Reads a stream of Server-Sent Events, and calls `onEvent` with the data of each, until `signal` aborts. */
export async function stream(path, onEvent, signal) {
  const reply = await send(path, { signal, headers: headers({ accept: 'text/event-stream' }) });
  if (!reply.ok) {
    const problem = await reply.json().catch(() => null);
    if (reply.status === 401 && token) onEnd(problem?.detail);
    throw new Problem(reply.status, problem);
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    pending += value.replaceAll('\r', '');
    for (let end = pending.indexOf('\n\n'); end >= 0; end = pending.indexOf('\n\n')) {
      const lines = pending.slice(0, end).split('\n');
      pending = pending.slice(end + 2);
      const data = lines.filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trimStart());
      if (data.length > 0) onEvent(JSON.parse(data.join('\n')));
    }
  }
}
