// What this tab keeps over a reload: the session, and a rule that is being edited. Never a configured token.

const [SESSION, DRAFT] = ['tidegate-session', 'tidegate-draft'];

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

/** Keeps a value, or removes it if it is `null`. A browser that keeps nothing is no reason to fail. */
function write(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // The page works until it is reloaded.
  }
}

/** The token of the session. */
export const keptSession = {
  read: () => read(SESSION)?.token ?? null,
  write: (token) => write(SESSION, { token }),
  remove: () => write(SESSION, null),
};

// Over a sign-in it is enough that the page has it.
let draft = read(DRAFT);

/** The text of a rule that was not applied yet: `{id, isNew, etag, yaml, text}`, the base and what became of it. */
export const keptDraft = {
  read: (id, isNew = false) => (draft && draft.id === id && Boolean(draft.isNew) === isNew ? draft : null),
  any: () => draft,
  write(next) {
    draft = next;
    write(DRAFT, next);
  },
  remove() {
    draft = null;
    write(DRAFT, null);
  },
};
