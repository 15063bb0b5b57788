// The unit that a rule counts: requests, or tokens, money, whatever its `unit` says.

import { brief, count } from './format.js';

/** The unit of a rule, or of a limit in an answer. */
export const unitOf = (rule) => rule?.unit ?? 'requests';

export const countsRequests = (rule) => unitOf(rule) === 'requests';

/** The name of a unit next to a number: `1 request`, `2 output tokens`. */
export function unitName(unit, number = 2) {
  const name = unit.replaceAll('_', ' ');
  return number === 1 && name.endsWith('s') ? name.slice(0, -1) : name;
}

/** A number with its unit. */
export const inUnit = (number, unit) => `${count(number)} ${unitName(unit, number)}`;

/** The same in a small space. */
export const brieflyInUnit = (number, unit) => `${brief(number)} ${unitName(unit, number)}`;

/** The units that rules count, requests first. */
export function unitsOf(rules) {
  const others = new Set(rules.map(unitOf).filter((unit) => unit !== 'requests'));
  return ['requests', ...[...others].sort()];
}
