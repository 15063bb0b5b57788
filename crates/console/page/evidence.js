// What a client really does, read again while its page is open: its demand, its last denied requests, a chart.

import { get } from './api.js';
import { clientChart } from './client-chart.js';
import { deniedTable, readDenied } from './denied.js';
import { demandOf, demandText, excess, narrowest } from './demand.js';
import { el, notice, panel, put } from './dom.js';
import { counted } from './format.js';
import { tellingValue } from './keys.js';
import { shortName } from './rules.js';
import { brieflyInUnit } from './unit.js';

const EVERY = 5_000;

/** The row of a client in the tables of a rule for the last minute, and since when it is counted. */
async function readRow(rule, key) {
  const names = Object.keys(key);
  const isSame = (row) => names.every((name) => row.key[name] === key[name]);
  for (const sort of ['denied', 'used']) {
    const answer = await get(`rules/${encodeURIComponent(rule)}/keys?sort=${sort}&window=1m&limit=100`);
    const row = answer.keys.find(isSame);
    if (row) return { row, from: answer.from };
  }
  return { row: null, from: 0 };
}

/** The evidence of a client of a rule that counts `unit`. `limits` are those of the rule as explained; `read()` reads everything again. */
export function clientEvidence(rule, key, unit) {
  const demand = el('div');
  const denied = deniedTable();
  const chart = clientChart(EVERY / 1_000, unit);
  let limits = [];
  let newest = { row: null, from: 0 };

  function showDemand() {
    const { row, from } = newest;
    const perMinute = row && demandOf(row, from);
    if (!perMinute) {
      put(demand);
      return;
    }
    const text = demandText(perMinute, narrowest(limits), unit);
    put(demand, row.denied > 0
      ? notice('careful', `Denied ${counted(row.denied, 'time')} in the last minute by ${shortName(rule)}`, text, row.used > 0 && ` Admitted in the same time: ${brieflyInUnit(row.used, unit)}.`)
      : notice('', null, text));
  }

  async function read() {
    const [found, samples] = await Promise.all([readRow(rule, key), readDenied(rule, tellingValue(key))]);
    newest = found;
    chart.add(found.row, found.from || Date.now() / 1000 - 60);
    denied.show(samples);
    showDemand();
  }

  const timer = setInterval(() => read().catch(() => {}), EVERY);
  return {
    demand,
    panels: [
      panel('Last denied requests', el('span', { class: 'small quiet' }, 'a sample, newest first'), denied.element),
      panel('Demand', el('span', { class: 'small quiet' }, 'means of the last minute, since this page was opened'), chart.element),
    ],
    read,
    last: () => newest.row?.last ?? null,
    /** How many times too much the client sends. */
    times() {
      const limit = narrowest(limits);
      const perMinute = newest.row && demandOf(newest.row, newest.from);
      return perMinute && limit ? excess(perMinute, limit) : 0;
    },
    compareWith(explained) {
      limits = explained;
      showDemand();
    },
    stop() {
      clearInterval(timer);
      chart.stop();
    },
  };
}
