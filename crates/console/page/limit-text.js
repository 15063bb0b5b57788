// Limits as rules write them: `100/minute burst 20; 1000/day`.

import { countsRequests, unitName, unitOf } from './unit.js';

const PART = /^\s*(\d+)(.*?)(?:\bburst\s+(\d+)\s*)?$/i;

/** A limit that is so many times as large, or `null` if the text has no numbers, as `unlimited` has not. */
export function scaled(text, factor) {
  const parts = String(text ?? '').split(/[;,|]/).map((part) => PART.exec(part));
  if (parts.some((part) => part === null)) return null;
  return parts.map(([, count, window, burst]) => {
    const rate = `${factor * Number(count)}${window.trimEnd()}`;
    return burst === undefined ? rate : `${rate} burst ${factor * Number(burst)}`;
  }).join('; ');
}

/** The limit of a rule in a few words, with what it counts if that is not requests: `100 tokens/minute`. */
export function limitWithUnit(rule) {
  return withUnit(limitText(rule), rule);
}

/** The text of a limit that a rule grants, with what the rule counts if that is not requests. */
export function withUnit(text, rule) {
  if (countsRequests(rule)) return text;
  return String(text).split(';').map((part) => part.replace(/^(\s*\d+)/, `$1 ${unitName(unitOf(rule))}`)).join(';');
}

/** The limit of a rule as it is written. */
export function limitText(rule) {
  if (!rule) return '';
  if (typeof rule.limit === 'string' || typeof rule.limit === 'number') return String(rule.limit);
  if (rule.limit?.requests) return `${rule.limit.requests}/${rule.limit.window}${rule.limit.burst ? ` burst ${rule.limit.burst}` : ''}`;
  if (rule.adaptive) return `adaptive, at most ${rule.adaptive.max}`;
  return rule.tiers ? 'by tier' : '–';
}

/** What a client with this limit has, as a part of a sentence. */
export function granted(limit) {
  return { blocked: 'is blocked', unlimited: 'has no limit' }[limit] ?? `has ${limit}`;
}
