// What a client sends, compared with what its limit grants.

import { brief, count, span } from './format.js';
import { unitName } from './unit.js';

const many = new Intl.NumberFormat('en', { maximumSignificantDigits: 2 });

/** A number that is only about right. */
const about = (number) => (number < 1 ? many.format(number) : brief(Number(number.toPrecision(2))));

/** The spans of time that limits name with a word, in seconds. */
const WORDS = new Map([[1, 'a second'], [60, 'a minute'], [3_600, 'an hour'], [86_400, 'a day'], [604_800, 'a week']]);

/**
 * What a client sends in a minute, from its row of the last minute: `{denied, used}` since `from`, both in units of cost.
 * `null` if that is too little to say anything.
 */
export function demandOf(row, from, now = Date.now() / 1000) {
  const seconds = Math.max(10, Math.min(60, now - from));
  const cost = row.last?.cost || 1;
  const sent = row.denied * cost + row.used;
  return sent === 0 ? null : (60 * sent) / seconds;
}

/** The limit that a demand is compared with: one that denies, of those the one that grants least. */
export function narrowest(limits) {
  const rates = limits.filter((limit) => limit.window > 0 && (limit.rate ?? limit.limit) > 0);
  const denying = rates.filter((limit) => !limit.allowed);
  const perSecond = (limit) => (limit.rate ?? limit.limit) / limit.window;
  return (denying.length > 0 ? denying : rates).sort((a, b) => perSecond(a) - perSecond(b))[0] ?? null;
}

/** How many times too much a client sends. Below 1 it stays within its limit. */
export function excess(perMinute, limit) {
  return perMinute / ((60 * (limit.rate ?? limit.limit)) / limit.window);
}

/** The demand of a client against its limit, in a sentence, with what is counted if that is not requests. */
export function demandText(perMinute, limit, unit = 'requests') {
  const of = unit === 'requests' ? '' : ` ${unitName(unit)}`;
  if (!limit) return `Sends about ${about(perMinute)}${of} a minute.`;
  const rate = limit.rate ?? limit.limit;
  const own = `${count(rate)}${of} ${WORDS.get(limit.window) ?? `in ${span(limit.window)}`}`;
  const average = limit.window === 60 ? '' : `, which is ${about((60 * rate) / limit.window)} a minute`;
  const times = excess(perMinute, limit);
  const verdict = times <= 1 ? `about ${Math.max(1, Math.round(100 * times))} % of it`
    : times < 1.15 ? 'slightly too much' : `about ${about(times)} times too much`;
  return `Sends about ${about(perMinute)}${of} a minute, limit ${own}${average}: ${verdict}.`;
}
