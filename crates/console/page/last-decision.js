// The last real decision of a client: what it sent, and what it got.

import { badge, el, visible } from './dom.js';
import { ago, clock, span } from './format.js';
import { withUnit } from './limit-text.js';
import { reasonText } from './reasons.js';
import { inUnit } from './unit.js';

export const SOURCES = { limit: 'the limit of the rule', tier: 'its tier', override: 'an override in the rule', temporary: 'a temporary override' };

/** The last decision by a rule that counts `unit`, as a list of facts; of several servers, with the one that made it. */
export function lastDecision(last, rule, { hasSeveral = false, unit = 'requests' } = {}) {
  const request = [last.method, last.path].filter(Boolean).map(visible).join(' ');
  const facts = [
    ['Decided', [last.allowed ? badge('good', 'allowed') : badge('bad', `denied: ${reasonText(last.reason)}`), ` ${clock(last.at)}, ${ago(last.at)}, by ${rule}`]],
    request && ['Request', el('bdi', { class: 'mono' }, request)],
    last.address && ['Address', el('bdi', { class: 'mono' }, visible(last.address))],
    last.front_end && ['Front end', last.front_end],
    ['Tier', last.tier ? el('b', {}, visible(last.tier)) : 'none'],
    last.grant && ['Granted', [el('b', {}, visible(withUnit(last.grant.value, { unit }))), ` from ${SOURCES[last.grant.from] ?? last.grant.from}`]],
    !last.allowed && ['Wait', last.retry_after === null ? 'waiting does not help' : `allowed again after ${span(last.retry_after)}`],
    (last.cost !== 1 || unit !== 'requests') && ['Cost', inUnit(last.cost, unit)],
    hasSeveral && last.instance && ['Instance', el('span', { class: 'mono' }, last.instance)],
  ].filter(Boolean);
  return el('dl', { class: 'facts' }, facts.map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}
