// Keys of rules: how they are shown, and the request of a client with such a key.

import { el, visible } from './dom.js';
import { link } from './router.js';
import { isSecret } from './session.js';

/** The text of a key such as `{"user_id": "u1"}`. */
export function keyText(key) {
  const values = Object.entries(key ?? {});
  if (values.length === 0) return 'all requests together';
  return values.map(([name, value]) => (values.length === 1 ? visible(value) : `${name}=${visible(value)}`)).join(', ');
}

/** A link to the page of the client with this key. */
export function keyLink(rule, key) {
  const parameters = { rule };
  for (const [name, value] of Object.entries(key ?? {})) parameters[`a.${name}`] = value;
  return el('a', { href: link(['client'], parameters), class: 'mono' }, el('bdi', {}, keyText(key)));
}

/** A link to the page of a rule. */
export function ruleLink(rule) {
  return el('a', { href: link(['rules', rule]), class: 'rule-name', title: rule }, rule);
}

/** The attribute that overrides of a rule are by: the first of `per`. */
export function overriddenBy(rule) {
  return Array.isArray(rule?.per) ? rule.per[0] : rule?.per;
}

/** Whether a key has a value that is only known as a digest. */
export function isDigest(key) {
  return Object.keys(key ?? {}).some(isSecret);
}

/** Whether a value has the form in which tables show a secret one: 12 digits, maybe after its first characters. */
export const hasFormOfDigest = (value) => /^(?:.{1,4}…)?[0-9a-f]{12}$/u.test(value);

const first = (value) => (Array.isArray(value) ? value[0] : value);

/** Attributes of a request that the rule applies to, from what the rule matches. */
export function sample(rule) {
  const match = rule?.match ?? {};
  const attributes = {};
  if (match.path) attributes.path = first(match.path).replace('/**', '/any').replaceAll('*', 'any');
  if (match.method) attributes.method = first(match.method);
  if (match.host) attributes.host = first(match.host).replace('*', 'www');
  if (match.ip) attributes.ip = first(match.ip).split('/')[0];
  for (const [name, value] of Object.entries(match.attributes ?? {})) {
    if (first(value) !== undefined) attributes[name] = String(first(value));
  }
  return attributes;
}
