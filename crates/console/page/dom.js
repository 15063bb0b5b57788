// Builds elements. Text from outside is only ever set as text; what could steer a reader is made visible.

/** An element with attributes, listeners (`onclick`) and children. Texts become text nodes. */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'value') element.value = value;
    else element.setAttribute(key, value === true ? '' : String(value));
  }
  put(element, ...children);
  return element;
}

/** Replaces the children of an element. */
export function put(element, ...children) {
  element.replaceChildren();
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** An SVG element. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

// Control characters, marks that change the direction of text, and characters without a width.
const STEERING = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;

/** Text that a client chose, with control and bidirectional characters written as `\u{1b}`. */
export function visible(text) {
  return String(text).replace(STEERING, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** A panel with a heading. */
export function panel(title, actions, ...children) {
  const heading = el('h2', {}, title);
  const head = el('header', {}, heading, actions && el('div', { class: 'actions' }, actions));
  return el('section', { class: 'panel', 'aria-label': title }, head, ...children);
}

export function badge(kind, text) {
  return el('span', { class: `badge ${kind}` }, text);
}

/** A sentence of the server, in which names and values are between backticks. */
export function prose(text) {
  return String(text).split('`').map((part, index, all) => (index % 2 === 1 && index < all.length - 1 ? el('code', {}, part) : index % 2 === 1 ? `\`${part}` : part));
}

export function notice(kind, title, ...children) {
  const role = kind === 'bad' ? 'alert' : undefined;
  const shown = (child) => (typeof child === 'string' ? prose(child) : child);
  return el('div', { class: `notice ${kind}`, role }, title && el('strong', {}, prose(title)), ...children.map(shown));
}

/** A box around wide content that scrolls by itself, also by keyboard. */
export function scroll(label, child) {
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label }, child);
}
