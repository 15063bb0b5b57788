// A chart of time series, in requests or another unit per second, with the same numbers as a table.

import uPlot from './vendor/uplot/uPlot.esm.js';
import { el, put } from './dom.js';
import { clock, rate, zone } from './format.js';
import { markKinds, markText } from './marks.js';
import { average, latest, sum } from './series.js';
import { plainTable } from './table.js';
import { unitName } from './unit.js';

const LABELS = { cost: 'Used', allowed: 'Allowed', denied: 'Denied', shadow_denied: 'Shadow-denied', delayed: 'Delayed', degraded: 'Degraded', candidate_denied: 'Candidate: would have been denied' };
const DASHES = { shadow_denied: [6, 3], delayed: [2, 3], degraded: [8, 3, 2, 3], candidate_denied: [4, 2, 1, 2] };

// How many rows the table has; points are added up.
const ROWS = 30;
// Readers who asked for less motion see the chart move this seldom, in milliseconds.
const CALM = 5_000;

const dark = matchMedia('(prefers-color-scheme: dark)');
const calm = matchMedia('(prefers-reduced-motion: reduce)');

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name.replace('_', '-')}`).trim();
}

/** The positions of numbers that have none next to them. */
function alone(values) {
  const isNone = (value) => value === null || value === undefined;
  const found = values.flatMap((value, index) => (!isNone(value) && isNone(values[index - 1]) && isNone(values[index + 1]) ? [index] : []));
  return found.length > 0 ? found : null;
}

/**
 * A chart of the series with these names, in `unit` per second. `show(window, rule)` draws it. The newest mark is below it
 * in words.
 */
export function timeChart(title, names, { height = 150, sync, saysMarks = true, unit = 'requests' } = {}) {
  const values = new Map(names.map((name) => [name, el('b', {}, '–')]));
  const legend = el('ul', { class: 'legend' },
    names.map((name) => el('li', {}, el('span', { class: `swatch ${name}` }), `${LABELS[name]} `, values.get(name), ` ${unitName(unit)}/s`)));
  const when = el('li', {}, 'average');
  const marks = markKinds();
  const newest = el('p', { class: 'small quiet marks' });
  legend.prepend(when);
  legend.append(...marks.elements);
  const plot = el('div', { class: 'plot', role: 'img', 'aria-label': title });
  const table = el('div');
  const details = el('details', { class: 'table-of', ontoggle: () => drawTable() }, el('summary', {}, `${title} as a table`), table);
  const element = el('figure', {}, el('figcaption', {}, el('h3', {}, title), legend), plot, newest, details);

  let drawn = null;
  let data = null;
  let source = null;
  let drawnAt = 0;
  let tableAt = 0;
  const observer = new ResizeObserver(() => drawn?.setSize({ width: plot.clientWidth, height }));
  observer.observe(plot);
  const redraw = () => { drawn?.destroy(); drawn = null; if (source) draw(); };
  dark.addEventListener('change', redraw);

  function options() {
    const axis = { stroke: color('quiet'), grid: { stroke: color('line'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
    const isFine = source.window.step < 60;
    return {
      width: plot.clientWidth || 300,
      height,
      padding: [16, 8, 0, 0],
      legend: { show: false },
      cursor: { y: false, sync: sync ? { key: sync } : undefined, drag: { x: false, y: false } },
      tzDate: (seconds) => (zone.isUtc() ? uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC') : new Date(seconds * 1000)),
      scales: { y: { range: (u, low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [
        { ...axis, size: 28, space: 90, values: (u, splits) => splits.map((at) => clock(at, isFine)) },
        { ...axis, size: 52, space: 34, values: (u, splits) => splits.map((value) => rate(value)) },
      ],
      series: [{}, ...names.map((name) => ({
        label: LABELS[name],
        stroke: color(name),
        width: 1.75,
        dash: DASHES[name],
        fill: names.length === 1 || name === 'denied' ? `${color(name)}29` : undefined,
        // A single point between two gaps has no line.
        points: { show: false, size: 4, fill: color(name), filter: (u, at) => alone(u.data[at]) },
      }))],
      hooks: { draw: [drawMarks], setCursor: [showValues] },
    };
  }

  function drawMarks(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'alphabetic';
    for (const mark of visibleMarks()) {
      const x = Math.round(u.valToPos(mark.at, 'x', true));
      ctx.strokeStyle = color(mark.override ? 'override' : 'accent');
      ctx.fillStyle = ctx.strokeStyle;
      ctx.setLineDash((mark.override ? [1, 3] : [4, 3]).map((size) => size * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(mark.override ? '▼' : `v${mark.version}`, x, bbox.top - 4 * devicePixelRatio);
    }
    ctx.restore();
  }

  function visibleMarks() {
    return source.window.marks(source.rule).filter((mark) => mark.at >= source.window.from);
  }

  function showValues(u) {
    const at = u?.cursor.idx;
    const isOver = at !== null && at !== undefined && u.cursor.left >= 0;
    when.textContent = isOver ? `at ${clock(data[0][at], source.window.step < 60)}` : 'average';
    names.forEach((name, index) => {
      const value = isOver ? data[index + 1][at] : average(source.of[name], source.missing, source.window.step);
      values.get(name).textContent = value === null ? 'no data' : rate(value ?? 0);
    });
  }

  function draw() {
    const { window: shown, of, missing } = source;
    data = [shown.times(), ...names.map((name) => (of[name] ?? []).map((value, index) => (missing[index] ? null : value / shown.step)))];
    // The newest point is not whole yet, and would look like a drop.
    if (data[0].length > 2) data = data.map((column) => column.slice(0, -1));
    if (drawn && drawn.step === shown.step && drawn.isUtc === zone.isUtc()) drawn.setData(data);
    else {
      drawn?.destroy();
      put(plot);
      drawn = new uPlot(options(), data, plot);
      drawn.step = shown.step;
      drawn.isUtc = zone.isUtc();
    }
    const seen = visibleMarks();
    marks.show(seen);
    put(newest, saysMarks && seen.length > 0 && `${clock(seen.at(-1).at)} ${markText(seen.at(-1))}`);
    showValues(drawn);
    const now = names.map((name) => `${LABELS[name]} ${rate(latest(of[name], shown.step))} ${unitName(unit)} per second`);
    plot.setAttribute('aria-label', `${title}. Now: ${now.join(', ')}. The table below has all numbers.`);
  }

  function drawTable() {
    if (!details.open || !source) return;
    const { window: shown, of, missing } = source;
    const times = shown.times();
    const each = Math.max(1, Math.ceil(times.length / ROWS));
    const rows = [];
    for (let first = times.length - each; first > -each; first -= each) {
      const [low, high] = [Math.max(0, first), first + each];
      const known = missing.slice(low, high).filter((isMissing) => !isMissing).length * shown.step;
      const cells = names.map((name) => (known === 0 ? 'no data' : rate(sum((of[name] ?? []).slice(low, high)) / known)));
      const marked = shown.marks(source.rule).filter((mark) => mark.at >= times[low] && mark.at < times[low] + (high - low) * shown.step);
      rows.push([clock(times[low], shown.step < 60), ...cells, marked.map(markText).join('; ')]);
    }
    const columns = [[`From (${zone.name()})`], ...names.map((name) => [`${LABELS[name]}, ${unitName(unit)}/s`, true]), ['Changes']];
    put(table, plainTable(`${title}, by time`, columns, rows));
    tableAt = Date.now();
  }

  return {
    element,
    show(shown, rule) {
      source = { window: shown, of: shown.of(rule), rule, missing: shown.missing() };
      if (calm.matches && drawn?.step === shown.step && Date.now() - drawnAt < CALM) return;
      drawnAt = Date.now();
      draw();
      if (Date.now() - tableAt > CALM) drawTable();
    },
    stop() {
      observer.disconnect();
      dark.removeEventListener('change', redraw);
      drawn?.destroy();
      drawn = null;
    },
  };
}
