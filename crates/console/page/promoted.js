// The candidate of a rule, and the rule after its promotion.

import { limitText } from './limit-text.js';

// The options of algorithms: a candidate with another algorithm does not keep them.
const OPTIONS = { anchor: 'fixed_window', slots: 'sliding_window_slots', strict: 'sliding_window_slots', shape: 'leaky_bucket', max_delay: 'token_bucket', lease_ttl: 'concurrency' };
const PARTS = ['limit', 'tiers', 'overrides', 'algorithm', ...Object.keys(OPTIONS)];

/** The parts of a rule that its candidate names. */
function named(rule) {
  const { candidate } = rule;
  const isMap = typeof candidate === 'object' && !Array.isArray(candidate) && PARTS.some((part) => part in candidate);
  return isMap ? candidate : { limit: candidate };
}

/** The candidate of a rule in a few words. */
export function candidateText(rule) {
  const parts = named(rule);
  const others = Object.keys(parts).filter((part) => part !== 'limit').map((part) => (typeof parts[part] === 'object' ? `other ${part}` : `${part.replaceAll('_', ' ')} ${parts[part]}`));
  return [limitText({ ...rule, ...parts }), ...others].join(', ');
}

/** The rule after its promotion, without what the server computes; `null` if there is nothing to promote. */
export function promoted({ worst_case: _computed, candidate, rollout, mode, ...rule }) {
  const withMode = mode === undefined ? {} : { mode };
  if (candidate !== undefined && candidate !== null) {
    const parts = named({ candidate });
    const algorithm = parts.algorithm;
    const kept = Object.entries(rule).filter(([key]) => !algorithm || !(key in OPTIONS) || OPTIONS[key] === algorithm);
    return { ...Object.fromEntries(kept), ...withMode, ...parts };
  }
  if (rollout !== undefined && rollout !== null) return { ...rule, ...withMode };
  return mode === 'shadow' ? rule : null;
}
