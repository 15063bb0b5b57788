// The overview: what is allowed and denied now, by which rules, for which clients, and whether the server is well.

import { followActivity } from '../activity.js';
import { stateBadge, windowChoice } from '../activity-state.js';
import { get } from '../api.js';
import { changeButton, whyRulesAreFixed, whyRulesComeFromElsewhere } from '../buttons.js';
import { timeChart } from '../chart.js';
import { el, notice, panel, put } from '../dom.js';
import { brief, count, counted, percent, rate } from '../format.js';
import { healthFacts, readStatus } from '../health.js';
import { keyLink, ruleLink } from '../keys.js';
import { go } from '../router.js';
import { readRules } from '../rules.js';
import { ruleTable } from '../rule-table.js';
import { latest, sum } from '../series.js';
import { sourceView } from '../source.js';

// How many of the rules that deny most are asked for their clients, and how many clients are shown.
const [BUSY_RULES, CLIENTS] = [5, 10];
const EVERY = 5_000;

export function showOverview(main) {
  const state = stateBadge();
  const pause = el('button', { type: 'button', onclick: () => { follower.toggle(); showChoice(); } }, 'Pause');
  const choice = windowChoice((window) => { follower.choose(window); showChoice(); });
  const values = { allowed: tile('allowed', 'Allowed now', '/s'), denied: tile('denied', 'Denied now', '/s'), share: tile('denied', 'Denied share now', ''), degraded: tile('degraded', 'Degraded now', '/s'), keys: tile('', 'Rules that deny now', '') };
  const denied = timeChart('Denied and degraded', ['denied', 'shadow_denied', 'degraded'], { sync: 'overview' });
  const allowed = timeChart('Allowed', ['allowed'], { height: 120, sync: 'overview', saysMarks: false });
  const health = healthFacts();
  const problem = el('div');
  const source = sourceView({ onlyTrouble: true });
  const charts = panel('Requests per second', null, el('div', { class: 'stack' }, denied.element, allowed.element));
  const clients = el('div', {}, el('p', { class: 'empty' }, 'Loading…'));
  const add = el('span');
  const leftOut = el('p', { class: 'small quiet' });
  const table = ruleTable({ most: 15, empty: () => whyRulesComeFromElsewhere() ? 'No rules are in force.' : ['No rules yet: every request is allowed. ', el('a', { href: '#/add-rule' }, 'Add a rule'), ', or run ', el('code', {}, 'tidegate rules apply -f FILE'), '.'] });
  let rules = [];
  let series = null;

  put(main,
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, 'Overview'), state.element,
      el('div', { class: 'actions' }, choice.element, pause)),
    el('div', { class: 'stack' },
      problem,
      source.element,
      el('div', { class: 'tiles' }, Object.values(values).map(({ element }) => element)),
      el('div', { class: 'columns overview' },
        panel('Most denied clients', el('span', { class: 'small quiet' }, 'last minute'), clients),
        el('div', { class: 'stack' }, charts, panel('Rules', add, table.element, leftOut)),
        panel('Health', null, health.element))));

  function showChoice() {
    choice.show(follower.chosen());
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
    values.keys.show(count(table.show(rules, series).filter((row) => row.denied > 0).length));
    leftOut.textContent = series.leftOut > 0 ? `${counted(series.leftOut, 'rule')} with the least traffic ${series.leftOut === 1 ? 'is' : 'are'} shown without numbers.` : '';
  }

  const follower = followActivity(show, (text) => {
    put(problem, text === 'off' && notice('careful', 'Activity is off', 'The setting `activity` is `off`, so there are no series and no top clients. Rules, explain and changes work.'));
    state.show(text);
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
          el('td', {}, ruleLink(key.rule)),
          el('td', { class: 'number' }, brief(key.denied)))))));
  }

  async function readSlowly() {
    const all = await readRules().catch(() => null);
    const status = all?.status ?? await readStatus();
    if (all) rules = all.rules;
    health.show(status, series?.instances);
    source.show(status);
    if (!add.hasChildNodes()) put(add, changeButton('Add a rule', () => go(['add-rule']), { why: whyRulesAreFixed }));
    if (series) show(series);
    else if (all) table.show(rules);
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
