// A small chart for a cell of a table: what was allowed, and above all what was denied.

import { svg } from './dom.js';
import { count } from './format.js';
import { sum } from './series.js';

const [WIDTH, HEIGHT, POINTS] = [120, 26, 60];

/** `missing` says for which points there are no numbers; there the lines are broken. */
export function sparkline(allowed = [], denied = [], missing = []) {
  const [first, second] = [thinned(allowed, missing), thinned(denied, missing)];
  const most = Math.max(1, ...first, ...second);
  const label = `${count(sum(allowed))} allowed, ${count(sum(denied))} denied`;
  return svg('svg', { class: 'spark', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': label, preserveAspectRatio: 'none' },
    svg('path', { d: path(first, most) }), svg('path', { class: 'denied', d: path(second, most) }));
}

/** Sums of neighbours, at most `POINTS` of them; `null` where there are no numbers. */
function thinned(values, missing) {
  const each = Math.max(1, Math.ceil(values.length / POINTS));
  const points = [];
  for (let at = 0; at < values.length; at += each) {
    const known = values.slice(at, at + each).filter((_, index) => !missing[at + index]);
    points.push(known.length === 0 ? null : sum(known));
  }
  return points;
}

function path(values, most) {
  const step = WIDTH / Math.max(1, values.length - 1);
  const y = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1);
  const isFirst = (index) => index === 0 || values[index - 1] === null;
  return values.map((value, index) => (value === null ? '' : `${isFirst(index) ? 'M' : 'L'}${(index * step).toFixed(1)} ${y(value)}`)).join('');
}
