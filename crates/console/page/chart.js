// A chart of time series in requests per second, with the same numbers as a table.

import uPlot from './vendor/uplot/uPlot.esm.js';
import { el, put } from './dom.js';
import { clock, rate, zone } from './format.js';
import { latest } from './series.js';
import { plainTable } from './table.js';

const LABELS = { allowed: 'Allowed', denied: 'Denied', shadow_denied: 'Shadow-denied', delayed: 'Delayed', degraded: 'Degraded' };
const DASHES = { shadow_denied: [6, 3], delayed: [2, 3], degraded: [8, 3, 2, 3] };

// How many rows the table has; points are added up.
const ROWS = 30;
// Readers who asked for less motion see the chart move this seldom, in milliseconds.
const CALM = 5_000;

const dark = matchMedia('(prefers-color-scheme: dark)');
const calm = matchMedia('(prefers-reduced-motion: reduce)');

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name.replace('_', '-')}`).trim();
}

/** A chart of the series with these names. `show(window, rule)` draws it. */
export function timeChart(title, names, { height = 150, sync } = {}) {
  const values = new Map(names.map((name) => [name, el('b', {}, '–')]));
  const legend = el('ul', { class: 'legend' },
    names.map((name) => el('li', {}, el('span', { class: `swatch ${name}` }), `${LABELS[name]} `, values.get(name), ' /s')));
  const mark = el('li', { hidden: true }, el('span', { class: 'swatch change' }), 'rules changed');
  legend.append(mark);
  const plot = el('div', { class: 'plot', role: 'img', 'aria-label': title });
  const table = el('div');
  const details = el('details', { class: 'table-of', ontoggle: () => drawTable() }, el('summary', {}, `${title} as a table`), table);
  const element = el('figure', {}, el('figcaption', {}, el('h3', {}, title), legend), plot, details);

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
        points: { show: false },
      }))],
      hooks: { draw: [drawMarks], setCursor: [showValues] },
    };
  }

  function drawMarks(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = color('accent');
    ctx.fillStyle = color('accent');
    ctx.lineWidth = devicePixelRatio;
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'alphabetic';
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const change of visibleChanges()) {
      const x = Math.round(u.valToPos(change.at, 'x', true));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(`v${change.version}`, x, bbox.top - 4 * devicePixelRatio);
    }
    ctx.restore();
  }

  function visibleChanges() {
    const { window: shown } = source;
    return shown.changes.filter((change) => change.at >= shown.from);
  }

  function showValues(u) {
    names.forEach((name, index) => {
      const at = u?.cursor.idx;
      const isOver = at !== null && at !== undefined && u.cursor.left >= 0;
      const value = isOver ? data[index + 1][at] : latest(source.of[name], source.window.step);
      values.get(name).textContent = rate(value ?? 0);
    });
  }

  function draw() {
    const { window: shown, of } = source;
    data = [shown.times(), ...names.map((name) => (of[name] ?? []).map((value) => value / shown.step))];
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
    mark.hidden = visibleChanges().length === 0;
    showValues(drawn);
    const now = names.map((name) => `${LABELS[name]} ${rate(latest(of[name], shown.step))} per second`);
    plot.setAttribute('aria-label', `${title}. Now: ${now.join(', ')}. The table below has all numbers.`);
  }

  function drawTable() {
    if (!details.open || !source) return;
    const { window: shown, of } = source;
    const times = shown.times();
    const each = Math.max(1, Math.ceil(times.length / ROWS));
    const rows = [];
    for (let first = times.length - each; first > -each; first -= each) {
      const [low, high] = [Math.max(0, first), first + each];
      const seconds = (high - low) * shown.step;
      const cells = names.map((name) => rate((of[name] ?? []).slice(low, high).reduce((total, value) => total + value, 0) / seconds));
      const changes = shown.changes.filter((change) => change.at >= times[low] && change.at < times[low] + seconds);
      rows.push([clock(times[low], shown.step < 60), ...cells, changes.map((change) => `version ${change.version} by ${change.by}`).join(', ')]);
    }
    const columns = [[`From (${zone.name()})`], ...names.map((name) => [`${LABELS[name]} /s`, true]), ['Rules changed']];
    put(table, plainTable(`${title}, by time`, columns, rows));
    tableAt = Date.now();
  }

  return {
    element,
    show(shown, rule) {
      source = { window: shown, of: shown.of(rule) };
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
