// The overview: what is allowed and denied now, by which rules, for which clients, and whether the server is well.

import { WINDOWS, followActivity } from '../activity.js';
import { get } from '../api.js';
import { timeChart } from '../chart.js';
import { badge, el, notice, panel, put } from '../dom.js';
import { brief, count, percent, rate } from '../format.js';
import { healthFacts, readStatus } from '../health.js';
import { keyLink } from '../keys.js';
import { link } from '../router.js';
import { latest, sum } from '../series.js';
import { sparkline } from '../sparkline.js';
import { sortable } from '../table.js';

// How many of the rules that deny most are asked for their clients, and how many clients are shown.
const [BUSY_RULES, CLIENTS] = [5, 10];
const EVERY = 5_000;

export function showOverview(main) {
  const state = el('span', { class: 'badge' }, 'loading');
  const pause = el('button', { type: 'button', onclick: () => { follower.toggle(); showChoice(); } }, 'Pause');
  const choices = WINDOWS.map((window) => el('button', { type: 'button', onclick: () => { follower.choose(window); showChoice(); } }, window.label));
  const values = { allowed: tile('allowed', 'Allowed', '/s'), denied: tile('denied', 'Denied', '/s'), share: tile('denied', 'Denied share', ''), degraded: tile('degraded', 'Degraded', '/s'), keys: tile('', 'Rules that deny', '') };
  const denied = timeChart('Denied and degraded', ['denied', 'shadow_denied', 'degraded'], { sync: 'overview' });
  const allowed = timeChart('Allowed', ['allowed'], { height: 120, sync: 'overview' });
  const health = healthFacts();
  const problem = el('div');
  const charts = panel('Requests per second', null, el('div', { class: 'stack' }, denied.element, allowed.element));
  const clients = el('div', {}, el('p', { class: 'empty' }, 'Loading…'));
  const leftOut = el('p', { class: 'small quiet' });
  let details = new Map();
  let series = null;

  const rules = sortable('Rules, by denials', [
    { name: 'Rule', isHead: true, value: (row) => row.rule, cell: (row) => [el('a', { href: link(['rules', row.rule]) }, row.rule), ' ', details.get(row.rule)?.mode === 'shadow' && badge('accent', 'shadow')] },
    { name: 'Limit', isWideOnly: true, cell: (row) => el('span', { class: 'small limit' }, limitText(details.get(row.rule))) },
    { name: 'Trend', isWideOnly: true, cell: (row) => sparkline(row.of.allowed, row.of.denied) },
    { name: 'Allowed /s', isNumber: true, isWideOnly: true, value: (row) => row.allowed, cell: (row) => rate(row.allowed) },
    { name: 'Denied /s', isNumber: true, value: (row) => row.denied, cell: (row) => rate(row.denied) },
    { name: 'Denied', isNumber: true, value: (row) => row.all, cell: (row) => brief(row.all) },
    { name: 'Share', isNumber: true, isWideOnly: true, value: (row) => row.share, cell: (row) => percent(row.all, row.asked) },
    { name: 'Shadow', isNumber: true, isWideOnly: true, value: (row) => row.shadow, cell: (row) => brief(row.shadow) },
  ], { sortBy: 'Denied', most: 15, empty: 'No rules yet. Add them with `tidegate rules apply -f FILE`.' });

  put(main,
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, 'Overview'), state,
      el('div', { class: 'actions' }, el('div', { class: 'choices', role: 'group', 'aria-label': 'Window' }, choices), pause)),
    el('div', { class: 'stack' },
      problem,
      el('div', { class: 'tiles' }, Object.values(values).map(({ element }) => element)),
      el('div', { class: 'columns wide-narrow' },
        el('div', { class: 'stack' }, charts, panel('Rules', null, rules.element, leftOut)),
        el('div', { class: 'stack' }, panel('Most denied clients', el('span', { class: 'small quiet' }, 'last minute'), clients), panel('Health', null, health.element)))));

  function showChoice() {
    WINDOWS.forEach((window, index) => choices[index].setAttribute('aria-pressed', window === follower.chosen()));
    pause.textContent = follower.isPaused() ? 'Resume' : 'Pause';
    pause.hidden = !follower.chosen().isLive;
  }

  function show(next) {
    series = next;
    const { total, step } = series;
    const now = (name) => latest(total[name], step, follower.chosen().isLive ? 5 : 1);
    values.allowed.show(rate(now('allowed')));
    values.denied.show(rate(now('denied')));
    values.share.show(percent(now('denied'), now('allowed') + now('denied')));
    values.degraded.show(rate(now('degraded')));
    denied.show(series);
    allowed.show(series);
    const ids = new Set([...series.rules.keys(), ...details.keys()]);
    const rows = [...ids].map((rule) => {
      const of = series.of(rule);
      const all = sum(of.denied);
      const asked = all + sum(of.allowed);
      return { rule, of, all, asked, share: asked ? all / asked : 0, shadow: sum(of.shadow_denied), allowed: latest(of.allowed, step), denied: latest(of.denied, step) };
    });
    values.keys.show(count(rows.filter((row) => row.denied > 0).length));
    rules.show(rows);
    leftOut.textContent = series.leftOut > 0 ? `${count(series.leftOut)} rules with the least traffic are shown without numbers.` : '';
  }

  const follower = followActivity(show, (text) => {
    put(problem, text === 'off' && notice('careful', 'Activity is off', 'The setting “activity” is “off”, so there are no series and no top clients. Rules, explain and changes work.'));
    const known = { live: ['good', '● live'], paused: ['careful', 'paused'], off: ['careful', 'activity is off'], '': ['', 'every 15 s'] };
    const [kind, word] = known[text] ?? ['bad', text];
    state.className = `badge ${kind}`;
    state.textContent = word;
  });
  showChoice();

  async function readClients() {
    const busy = [...(series?.rules ?? [])].map(([rule, of]) => [rule, sum(of.denied?.slice(-60))]);
    const asked = busy.filter(([, all]) => all > 0).sort((a, b) => b[1] - a[1]).slice(0, BUSY_RULES);
    const answers = await Promise.all(asked.map(async ([rule]) => {
      const answer = await get(`rules/${encodeURIComponent(rule)}/keys?sort=denied&window=1m`).catch(() => null);
      return (answer?.keys ?? []).map((key) => ({ ...key, rule }));
    }));
    const keys = answers.flat().filter((key) => key.denied > 0).sort((a, b) => b.denied - a.denied).slice(0, CLIENTS);
    if (clients.contains(document.activeElement)) return;
    put(clients, keys.length === 0
      ? el('p', { class: 'empty' }, 'No client was denied in the last minute.')
      : el('table', {},
        el('caption', { class: 'hidden' }, 'Most denied clients'),
        el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Client'), el('th', { scope: 'col' }, 'Rule'), el('th', { scope: 'col', class: 'number' }, 'Denied'))),
        el('tbody', {}, keys.map((key) => el('tr', {},
          el('th', { scope: 'row' }, keyLink(key.rule, key.key)),
          el('td', {}, el('a', { href: link(['rules', key.rule]), class: 'small' }, key.rule)),
          el('td', { class: 'number' }, brief(key.denied)))))));
  }

  async function readSlowly() {
    const [status, all] = await Promise.all([readStatus(), get('rules').catch(() => null)]);
    if (all) details = new Map(all.rules.map((rule) => [rule.id, rule]));
    health.show(status, series?.instances);
    if (all && series) show(series);
    else if (all) rules.show(all.rules.map((rule) => ({ rule: rule.id, of: {}, all: 0, asked: 0, share: 0, shadow: 0, allowed: 0, denied: 0 })));
    await readClients();
  }

  readSlowly();
  const timer = setInterval(readSlowly, EVERY);
  const soon = setTimeout(readClients, 1_500);
  return () => {
    follower.stop();
    denied.stop();
    allowed.stop();
    clearInterval(timer);
    clearTimeout(soon);
  };
}

function tile(kind, what, unit) {
  const value = el('span', {}, '–');
  const element = el('div', { class: `tile ${kind}` }, el('div', { class: 'what' }, what), el('div', { class: 'value' }, value, unit && el('span', { class: 'unit' }, unit)));
  return { element, show: (text) => { value.textContent = text; } };
}

/** The limit of a rule in a few words. */
export function limitText(rule) {
  if (!rule) return '';
  if (typeof rule.limit === 'string' || typeof rule.limit === 'number') return String(rule.limit);
  if (rule.limit?.requests) return `${rule.limit.requests}/${rule.limit.window}`;
  if (rule.adaptive) return `adaptive, at most ${rule.adaptive.max}`;
  return rule.tiers ? 'by tier' : '–';
}
