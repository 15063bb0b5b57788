// Keys of rules: how they are shown, and the request of a client with such a key.

import { el, visible } from './dom.js';
import { link } from './router.js';
import { nameOf, partsOfName } from './rules.js';
import { isSecret } from './session.js';

/** The text of a key such as `{"user_id": "u1"}`. */
export function keyText(key) {
  const values = Object.entries(key ?? {});
  if (values.length === 0) return 'all requests together';
  // Entries that only name a route say nothing of the client.
  const telling = values.filter(([name, value]) => name !== value);
  if (telling.length > 0 && telling.length < values.length) return keyText(Object.fromEntries(telling));
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
  return el('a', { href: link(['rules', rule]), class: partsOfName(rule) ? 'path' : 'rule-name', title: nameOf(rule) }, ruleText(rule));
}

/** The name of a rule. Parts of that of a descriptor are left out where there is little room. */
export const ruleText = (rule) => partsOfName(rule)?.map(({ kind, text }) => el('span', { class: kind }, visible(text))) ?? rule;

const perOf = (rule) => [rule?.per ?? []].flat();

/** The attributes that name a client of a rule. */
export const namesOfKey = (rule) => rule.descriptor?.map(({ key }) => key) ?? perOf(rule);

/** The attributes that overrides of a rule are by: the first of `per`; of a descriptor, all that it leaves open. */
export const overriddenBy = (rule) => (rule?.descriptor ? perOf(rule) : perOf(rule).slice(0, 1));

/** Whether clients of a rule can have another limit for a while. */
export const takesOverrides = (rule) => rule?.descriptor !== undefined || overriddenBy(rule).length > 0;

/** What an override of a client with this key is for. A descriptor that leaves nothing open has one counter. */
export function overrideKey(rule, key) {
  const by = overriddenBy(rule);
  if (by.length === 0) return rule?.descriptor?.map(({ value }) => value).join('/');
  if (by.length === 1) return key?.[by[0]];
  return by.map((name) => String(key?.[name] ?? '').replaceAll('%', '%25').replaceAll('/', '%2F')).join('/');
}

/** The key of the client that an override is for. */
export function keyOfOverride(rule, override) {
  const by = overriddenBy(rule);
  if (by.length === 0) return Object.fromEntries(rule.descriptor.map(({ key, value }) => [key, value]));
  if (by.length === 1) return { [by[0]]: override.digest ?? override.key };
  const values = override.key.split('/').map((value) => value.replaceAll('%2F', '/').replaceAll('%25', '%'));
  return Object.fromEntries(by.map((name, index) => [name, values[index]]));
}

/** Whether an override is for this key. Tables show a digest with the first characters of the value in front of it. */
export function isForKey(override, key) {
  const [own, asked] = [override.key, key].map((text) => String(text).split('/'));
  return own.length === asked.length && own.every((value, index) => value === asked[index] || asked[index].endsWith(`…${value}`));
}

/** The value that says most about a client: the last that is not only the name of a route. */
export function tellingValue(key) {
  const values = Object.entries(key);
  return (values.findLast(([name, value]) => name !== value) ?? values.at(-1))?.[1];
}

/** Whether a key has a value that is only known as a digest. */
export function isDigest(key) {
  return Object.keys(key ?? {}).some(isSecret);
}

/** Whether a value has the form in which tables show a secret one: 12 digits, maybe after its first characters. */
export const hasFormOfDigest = (value) => /^(?:.{1,4}…)?[0-9a-f]{12}$/u.test(value);

const first = (value) => (Array.isArray(value) ? value[0] : value);

/** Attributes of a request that the rule applies to, from what the rule matches. What a descriptor leaves open is empty: its entries have an order. */
export function sample(rule) {
  if (rule?.descriptor) return Object.fromEntries([['domain', rule.domain], ...rule.descriptor.map(({ key, value }) => [key, value ?? ''])]);
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
