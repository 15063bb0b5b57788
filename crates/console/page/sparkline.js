// A small chart for a cell of a table: what was allowed, and above all what was denied.

import { svg } from './dom.js';
import { count } from './format.js';
import { sum } from './series.js';

const [WIDTH, HEIGHT, POINTS] = [120, 26, 60];

export function sparkline(allowed = [], denied = []) {
  const [first, second] = [thinned(allowed), thinned(denied)];
  const most = Math.max(1, ...first, ...second);
  const label = `${count(sum(allowed))} allowed, ${count(sum(denied))} denied`;
  return svg('svg', { class: 'spark', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': label, preserveAspectRatio: 'none' },
    svg('path', { d: path(first, most) }), svg('path', { class: 'denied', d: path(second, most) }));
}

/** Sums of neighbours, at most `POINTS` of them. */
function thinned(values) {
  const each = Math.max(1, Math.ceil(values.length / POINTS));
  const points = [];
  for (let at = 0; at < values.length; at += each) points.push(sum(values.slice(at, at + each)));
  return points;
}

function path(values, most) {
  const step = WIDTH / Math.max(1, values.length - 1);
  const y = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1);
  return values.map((value, index) => `${index === 0 ? 'M' : 'L'}${(index * step).toFixed(1)} ${y(value)}`).join('');
}
