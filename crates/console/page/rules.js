// The rules in force, and what they are called. There can be thousands: they are read again only when their version is another.

import { get } from './api.js';
import { readStatus } from './health.js';
import { current } from './session.js';

let known = { session: null, version: null, rules: [], byId: new Map() };

/** The rules in force, by id too, and the status of the server. */
export async function readRules() {
  const session = current();
  const status = await readStatus();
  if (known.session !== session || known.version !== status.rules?.version) {
    const { rules, version } = await get('rules');
    known = { session, version, rules, byId: new Map(rules.map((rule) => [rule.id, rule])) };
  }
  return { rules: known.rules, byId: known.byId, status };
}

/** What a rule is called: by the path of its stats if it is a descriptor, else by its id. */
export const nameOf = (id) => known.byId.get(id)?.stat ?? id;

/** The path of a descriptor in parts: its domain, its entries, and values that only repeat their key. */
export function partsOfName(id) {
  const rule = known.byId.get(id);
  if (rule?.stat === undefined) return null;
  // It has as many letters as domain, keys and values have, of which some are replaced.
  let end = 0;
  const part = (kind, length) => ({ kind, text: rule.stat.slice(end, (end += length)) });
  const parts = [part('domain', rule.domain.length + 1)];
  rule.descriptor.forEach(({ key, value }, index) => {
    parts.push(part('entry', (index > 0 ? 1 : 0) + key.length));
    if (value) parts.push(part(value === key ? 'same' : 'entry', 1 + value.length));
  });
  return parts;
}

/** The name of a rule without values that only repeat their key, for sentences. */
export const shortName = (id) => partsOfName(id)?.filter(({ kind }) => kind !== 'same').map(({ text }) => text).join('') ?? id;

/** A text of the server, with the names of rules in place of their ids. */
export const withNames = (text) => text.replace(/[\w.-]+/g, shortName);
