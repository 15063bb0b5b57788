// Routes in the fragment of the address: `#/rules/per-user`, `#/client?user_id=u1`. Nothing of them is sent.

/** The route of a fragment: the parts of its path, and its parameters. */
export function parse(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const parts = path.split('/').filter(Boolean).map((part) => decode(part));
  return { parts, parameters: new URLSearchParams(query) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A fragment for a route. */
export function link(parts, parameters = {}) {
  const path = parts.map((part) => encodeURIComponent(part)).join('/');
  const query = new URLSearchParams(parameters).toString();
  return `#/${path}${query ? `?${query}` : ''}`;
}

export function go(parts, parameters) {
  location.hash = link(parts, parameters);
}

/** Changes the address without showing another page. */
export function replace(parts, parameters) {
  history.replaceState(null, '', link(parts, parameters));
}
