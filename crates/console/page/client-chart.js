// What one client was allowed and denied, since its page was opened: the server keeps no series of single clients.

import { timeChart } from './chart.js';
import { el, put } from './dom.js';
import { unitName } from './unit.js';

// The most points that are kept: an hour.
const MOST = 720;

/** Points in time of one client, in the form that charts read. */
class ClientSeries {
  constructor(step) {
    this.step = step;
    this.from = 0;
    this.points = [];
  }

  /** Adds a point: means per second over the last minute. */
  add(at, allowed, denied) {
    this.points.push({ allowed: allowed * this.step, denied: denied * this.step });
    this.points = this.points.slice(-MOST);
    this.from = at - (this.points.length - 1) * this.step;
  }

  newest = () => (this.points.length === 0 ? 0 : this.from + (this.points.length - 1) * this.step);

  // Charts leave out the newest point, which elsewhere is not whole yet.
  padded = () => [...this.points, this.points.at(-1)];

  times = () => this.padded().map((_, index) => this.from + index * this.step);

  of = () => {
    const used = this.padded().map((point) => point.allowed);
    return { allowed: used, cost: used, denied: this.padded().map((point) => point.denied) };
  };

  missing = () => this.padded().map(() => false);

  marks = () => [];
}

/**
 * A chart of a client, whose use is in `unit`: denials are requests, so that they are in the same chart only if that is
 * what is counted. `add(row, from)` adds what the server counted since `from`, every `step` seconds.
 */
export function clientChart(step, unit = 'requests') {
  const series = new ClientSeries(step);
  const chart = unit === 'requests'
    ? timeChart('Requests of this client', ['denied', 'allowed'], { height: 130 })
    : timeChart(`Use of this client, in ${unitName(unit)}`, ['cost'], { height: 130, unit });
  const element = el('div', {}, el('p', { class: 'empty' }, 'The chart begins in a few seconds.'));
  return {
    element,
    add(row, from) {
      const now = Date.now() / 1000;
      // Points are the same time apart, also if the page reads more often.
      if (now - series.newest() < 0.9 * step) return;
      const seconds = Math.max(10, Math.min(60, now - from));
      series.add(now, (row?.used ?? 0) / seconds, (row?.denied ?? 0) / seconds);
      if (series.points.length < 2) return;
      if (!chart.element.isConnected) put(element, chart.element);
      chart.show(series);
    },
    stop: chart.stop,
  };
}
