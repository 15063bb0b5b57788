// The answer of explain as a readable page: the decision, then every rule and every counter.

import { badge, el, notice, prose, visible } from './dom.js';
import { clock, count, span } from './format.js';
import { keyText, ruleText } from './keys.js';
import { SOURCES } from './last-decision.js';
import { withUnit } from './limit-text.js';
import { reasonSentence } from './reasons.js';
import { link } from './router.js';
import { shortName } from './rules.js';
import { inUnit, unitOf } from './unit.js';

const CONDITIONS = {
  starts_at: 'It has not started yet', expires_at: 'It has expired', method: 'The method does not match', host: 'The host does not match',
  path: 'The path does not match', ip: 'The address does not match', when: 'Its condition does not hold', except: 'The request is excepted', missing: 'The request lacks an attribute',
};

/**
 * The decision in a sentence, with what can be done about it. The rule that made it counts `unit`. `times` is how many times too much the client sends: then
 * it is not called allowed because a token came back just now.
 */
export function verdict(decision, actions, { times, unit }) {
  const remain = `${count(decision.remaining)} of ${inUnit(decision.limit, unit)} remain.`;
  const isDenied = !decision.allowed;
  const isTooMuch = times > 1.15;
  const word = isDenied ? 'Denied' : isTooMuch ? 'Over its limit' : decision.delay > 0 ? `Allowed after ${span(decision.delay)}` : 'Allowed';
  const wait = decision.retry_after === null ? 'Waiting does not help.' : `One such request is allowed in ${span(decision.retry_after)}${isTooMuch ? '; what this client sends is not' : ''}.`;
  const why = isDenied
    ? [reasonSentence(decision.reason), ' ', decision.reason === 'over_limit' && `${remain} `, decision.missing && `Missing: ${decision.missing.join(', ')}. `, wait]
    : decision.rule ? [isTooMuch && 'One such request is allowed now; what this client sends is not. ', remain] : ['No rule applies to this request.'];
  return el('div', { class: `verdict ${isDenied ? 'bad' : isTooMuch ? 'careful' : 'good'}`, role: 'status' },
    el('span', { class: 'word' }, word),
    el('span', {}, decision.rule && ['by ', el('a', { href: link(['rules', decision.rule]) }, ruleText(decision.rule)), '. '], why,
      decision.degraded && [' ', badge('careful', 'decided without the store')],
      el('span', { class: 'small quiet' }, ` As of ${clock(Date.now() / 1000)}.`)),
    actions && el('div', { class: 'actions' }, actions));
}

/** A rule that applies: the key, the tier, the grant, and a bar for each counter. `withTier(name)` explains again. */
export function appliedRule(explained, actions, withTier) {
  const { candidate } = explained;
  // What decides is the candidate, for a client in the rollout.
  const deciding = candidate?.decides ? candidate.limits : explained.limits;
  const isShadow = deciding.some((limit) => limit.shadow);
  const denies = deciding.some((limit) => !limit.allowed);
  const word = denies ? badge(isShadow ? 'careful' : 'bad', isShadow ? 'would deny' : 'denies') : badge('good', 'allows');
  const isUnknown = explained.tier === 'unknown' && explained.tiers;
  return el('article', { class: 'explained', 'aria-label': `Rule ${shortName(explained.rule)}` },
    el('header', {}, el('h3', {}, el('a', { href: link(['rules', explained.rule]) }, ruleText(explained.rule))), word, isShadow && badge('accent', 'shadow'),
      explained.tier && !isUnknown && badge('accent', `tier ${visible(explained.tier)}`),
      actions && el('div', { class: 'row' }, actions)),
    isUnknown && tierChoice(explained, withTier),
    el('p', { class: 'small' }, 'Counts ', el('b', { class: 'mono' }, el('bdi', {}, keyText(explained.key))),
      explained.grant && [' and grants ', el('b', {}, visible(withUnit(explained.grant.value, explained.limits[0]))), ' from ', SOURCES[explained.grant.from] ?? explained.grant.from]),
    explained.limits.map(counter),
    candidate && [
      el('p', { class: 'small' }, 'The candidate grants ', el('b', {}, visible(withUnit(candidate.grant.value, candidate.limits[0]))), ' ',
        candidate.decides ? badge('accent', 'decides, the limit only counts') : badge('', 'only counts')),
      candidate.limits.map(counter),
    ]);
}

/** Says that the tier is not known, and offers those of the rule. */
function tierChoice({ tiers, limits }, withTier) {
  return notice('careful', 'The tier of this client is not known',
    el('p', {}, 'The rule has tiers. What is shown is for a client without one.'),
    el('div', { class: 'row', role: 'group', 'aria-label': 'Explain with a tier' }, Object.entries(tiers).map(([name, limit]) => el('button', { type: 'button', onclick: () => withTier(name) }, `${visible(name)}: ${visible(withUnit(limit, limits[0]))}`))));
}

function counter(limit) {
  const isBlocked = limit.algorithm === 'blocked';
  const used = Math.max(0, (limit.limit ?? 0) - (limit.remaining ?? 0));
  const share = isBlocked ? 1 : limit.limit ? Math.min(1, used / limit.limit) : 0;
  const fill = el('span');
  fill.style.width = `${(100 * share).toFixed(1)}%`;
  const kind = !limit.allowed ? 'full' : share > 0.8 ? 'near' : '';
  // The limit of a bucket is its burst, which says nothing of its rate.
  const isBurst = /_bucket$/.test(limit.algorithm) && limit.rate && limit.rate !== limit.limit;
  const text = isBlocked ? 'blocked' : `${count(used)} of ${isBurst ? 'burst ' : ''}${inUnit(limit.limit, unitOf(limit))} used`;
  const window = limit.window ? span(limit.window) : '';
  const per = window && (isBurst ? `${inUnit(limit.rate, unitOf(limit))} per ${window}` : `window ${window}`);
  const after = !limit.allowed
    ? limit.retry_after === null ? 'no wait helps' : `allowed again in ${span(limit.retry_after)}`
    : limit.reset_time ? `whole again at ${clock(limit.reset_time)}` : '';
  return el('div', { class: 'counter' },
    el('span', {}, text),
    el('div', { class: `meter ${kind}`, role: 'meter', 'aria-valuemin': 0, 'aria-valuemax': isBlocked ? 1 : limit.limit ?? 0, 'aria-valuenow': isBlocked ? 1 : used, 'aria-label': text }, fill),
    el('span', { class: 'after' }, [limit.algorithm?.replaceAll('_', ' '), per, after, limit.delay > 0 && `delayed by ${span(limit.delay)}`].filter(Boolean).join(', ')),
    limit.promise && el('span', { class: 'after' }, prose(limit.promise)));
}

/** A rule that does not apply, and the first condition that fails. */
export function otherRule({ rule, failed }) {
  const name = failed?.condition ?? '';
  const attribute = name.startsWith('attributes.') ? name.slice('attributes.'.length) : null;
  const why = attribute ? `The attribute ${attribute} does not match` : CONDITIONS[name] ?? 'It does not apply';
  const shown = (value) => (typeof value === 'string' ? visible(value) : JSON.stringify(value));
  return el('li', {},
    el('div', {}, el('a', { href: link(['rules', rule]) }, ruleText(rule)), ' ', badge('', 'does not apply')),
    el('div', { class: 'small quiet' }, why, failed?.expected !== undefined && failed?.expected !== null && [': expected ', el('code', {}, shown(failed.expected))],
      failed && [', found ', failed.actual === null || failed.actual === undefined ? 'nothing' : el('code', {}, el('bdi', {}, shown(failed.actual)))]));
}

/** The headers that the client gets. */
export function headerList(headers) {
  const rows = Object.entries(headers ?? {});
  return el('details', {}, el('summary', {}, 'Headers that the client gets'),
    el('dl', { class: 'facts' }, rows.map(([name, value]) => [el('dt', { class: 'mono' }, name), el('dd', { class: 'mono' }, visible(value))])));
}
