// A rule that is a descriptor of envoyproxy/ratelimit: where it stands in its domain, and how a file would write it.

import { el, visible } from './dom.js';

/** The domain, the entries that lead to the limit, and the limit. */
export function descriptorFacts(rule) {
  const { name, replaces } = rule.rate_limit;
  const rows = [
    ['Domain', mono(rule.domain)],
    ['Entries', el('ol', { class: 'entries' }, rule.descriptor.map(({ key, value }) => el('li', {}, mono(key), value === undefined ? ' any value, each counted by itself' : value === key ? ' with the same value' : [' = ', mono(value)])))],
    ['Limit', rule.limit],
    name && ['Name', mono(name)],
    replaces && ['Replaces', mono(replaces.map((other) => other.name).join(', '))],
    rule.algorithm && ['Algorithm', rule.algorithm.replaceAll('_', ' ')],
    rule.quota_mode && ['Quota', 'a request is denied when all of its quotas are used up'],
    rule.on_store_failure && ['Without the store', rule.on_store_failure],
  ].filter(Boolean);
  return el('dl', { class: 'facts budget' }, rows.map(([term, value]) => [el('dt', {}, term), el('dd', {}, value)]));
}

const mono = (text) => el('bdi', { class: 'mono' }, visible(text));

/** The descriptor as YAML. Texts of JSON are texts of YAML. */
export function descriptorYaml(rule) {
  const lines = [`domain: ${text(rule.domain)}`, 'descriptors:'];
  rule.descriptor.forEach(({ key, value }, depth) => {
    const indent = '  '.repeat(2 * depth + 1);
    lines.push(`${indent}- key: ${text(key)}`);
    if (value !== undefined) lines.push(`${indent}  value: ${text(value)}`);
    if (depth < rule.descriptor.length - 1) lines.push(`${indent}  descriptors:`);
  });
  const indent = '  '.repeat(2 * rule.descriptor.length);
  lines.push(`${indent}rate_limit:`, ...Object.entries(rule.rate_limit).map(([name, value]) => `${indent}  ${name}: ${typeof value === 'string' ? text(value) : JSON.stringify(value)}`));
  if (rule.mode === 'shadow') lines.push(`${indent}shadow_mode: true`);
  if (rule.quota_mode) lines.push(`${indent}quota_mode: true`);
  return `${lines.join('\n')}\n`;
}

/** A text, in quotes if it could be read as anything else. */
const text = (value) => (/^[A-Za-z][\w./-]*$/.test(value) && !/^(y|n|yes|no|on|off|true|false|null)$/i.test(value) ? value : JSON.stringify(value));
