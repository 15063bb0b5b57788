// Sums by hand: limits that are multiplied, demand in words, and points without numbers.

import assert from 'node:assert/strict';
import { demandOf, demandText, narrowest } from '../page/demand.js';
import { limitWithUnit, scaled, withUnit } from '../page/limit-text.js';
import { ActivityWindow, average } from '../page/series.js';
import { inUnit, unitsOf } from '../page/unit.js';
import { runTests } from './browser.mjs';

const MINUTE = { window: 60, rate: 100, limit: 100, allowed: false };
const message = (from, length, more = {}) => ({ from, step: 1, total: { allowed: new Array(length).fill(2) }, rules: [], ...more });

const failures = await runTests('units', {
  async 'a limit is multiplied with its burst, and only where it has numbers'() {
    for (const [text, twice] of [
      ['100/minute', '200/minute'], ['60/hour burst 20', '120/hour burst 40'], ['10 per 2 hours', '20 per 2 hours'], ['5', '10'],
      ['100/minute; 1000/day', '200/minute; 2000/day'], ['3/30s burst 1 , 9/day', '6/30s burst 2; 18/day'],
      ['unlimited', null], ['blocked', null], ['by tier', null], ['', null], [undefined, null],
    ]) assert.equal(scaled(text, 2), twice, text);
  },

  async 'demand is compared with what the limit grants'() {
    const now = 1_000;
    assert.equal(demandOf({ denied: 2_300, used: 100 }, now - 60, now), 2_400);
    assert.equal(demandOf({ denied: 250, used: 50 }, now - 50, now), 360, 'the window had 50 seconds');
    assert.equal(demandOf({ denied: 10, used: 50, last: { cost: 5 } }, now - 60, now), 100, 'denials are requests, use is cost');
    assert.equal(demandOf({ denied: 0, used: 0 }, now - 60, now), null);
    for (const [perMinute, limit, text] of [
      [2_400, MINUTE, 'Sends about 2,400 a minute, limit 100 a minute: about 24 times too much.'],
      [80, MINUTE, 'Sends about 80 a minute, limit 100 a minute: about 80 % of it.'],
      [105, MINUTE, 'Sends about 110 a minute, limit 100 a minute: slightly too much.'],
      [480, { ...MINUTE, window: 3_600, rate: 60 }, 'Sends about 480 a minute, limit 60 an hour, which is 1 a minute: about 480 times too much.'],
      [12, null, 'Sends about 12 a minute.'],
    ]) assert.equal(demandText(perMinute, limit), text);
  },

  async 'numbers of a rule have its unit, and limits have it if that is not requests'() {
    for (const [number, unit, shown] of [[1, 'requests', '1 request'], [2_000, 'requests', '2,000 requests'], [0, 'output_tokens', '0 output tokens'], [1, 'output_tokens', '1 output token'], [1, 'money', '1 money']]) {
      assert.equal(inUnit(number, unit), shown);
    }
    const tokens = { unit: 'output_tokens', limit: '100/minute burst 20; 1000/day' };
    assert.equal(limitWithUnit(tokens), '100 output tokens/minute burst 20; 1000 output tokens/day');
    assert.equal(limitWithUnit({ limit: '100/minute' }), '100/minute');
    assert.equal(withUnit('unlimited', tokens), 'unlimited');
    assert.equal(demandText(80, MINUTE, 'output_tokens'), 'Sends about 80 output tokens a minute, limit 100 output tokens a minute: about 80 % of it.');
    assert.deepEqual(unitsOf([tokens, {}, { unit: 'money' }, tokens]), ['requests', 'money', 'output_tokens']);
  },

  async 'of several limits the one that denies is compared with'() {
    const day = { window: 86_400, rate: 1_000, limit: 1_000, allowed: true };
    assert.equal(narrowest([day, MINUTE]), MINUTE);
    assert.equal(narrowest([day, { ...MINUTE, allowed: true }]), day);
    assert.equal(narrowest([{ limit: 5, window: null, allowed: false }]), null, 'concurrency has no rate');
  },

  async 'points in a gap have no numbers, also when newer ones follow'() {
    const series = new ActivityWindow(10);
    series.absorb(message(100, 10, { gaps: [{ from: 90, to: 103 }, { from: 105, to: 106 }] }));
    const shown = () => series.missing().map((isMissing) => (isMissing ? '-' : 'x')).join('');
    assert.equal(shown(), '---xx-xxxx');
    assert.equal(average(series.total.allowed, series.missing(), 1), 2);
    series.absorb(message(108, 6, { gaps: [{ from: 112, to: 113 }] }));
    assert.equal(series.from, 104);
    assert.equal(shown(), 'x-xxxxxx-x');
    series.absorb(message(500, 10));
    assert.equal(shown(), 'xxxxxxxxxx');
  },

  async 'marks of overrides are kept apart from those of rules and of other rules'() {
    const series = new ActivityWindow(10);
    const change = (at, override) => ({ at, version: 3, by: 'ops', ...(override ? { override } : {}) });
    series.absorb(message(100, 10, { changes: [change(101), change(102, { rule: 'a', key: 'x', what: 'added', text: '' }), change(102, { rule: 'b', key: 'x', what: 'added', text: '' })] }));
    series.absorb(message(105, 6, { changes: [change(106, { rule: 'a', key: 'x', what: 'removed', text: '' })] }));
    assert.equal(series.marks().length, 4);
    assert.deepEqual(series.marks('a').map(({ at }) => at), [101, 102, 106]);
  },
});
process.exitCode = failures > 0 ? 1 : 0;
