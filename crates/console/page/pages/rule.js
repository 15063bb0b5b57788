// One rule: what it decides now, for which clients, its text, and its temporary overrides.

import { followActivity } from '../activity.js';
import { stateBadge, windowChoice } from '../activity-state.js';
import { get } from '../api.js';
import { changeButton, whyRulesAreFixed } from '../buttons.js';
import { trialPanel } from '../candidate.js';
import { timeChart } from '../chart.js';
import { descriptorFacts } from '../descriptor.js';
import { badge, el, notice, panel, prose, put, visible } from '../dom.js';
import { ago, brief, counted, percent } from '../format.js';
import { isDigest, keyLink, ruleText } from '../keys.js';
import { limitWithUnit } from '../limit-text.js';
import { overrideList } from '../overrides.js';
import { go, link } from '../router.js';
import { readRules } from '../rules.js';
import { sum } from '../series.js';
import { sourceLine } from '../source.js';
import { sortable } from '../table.js';
import { brieflyInUnit, countsRequests, unitName, unitOf } from '../unit.js';
import { readRule, yamlView } from '../yaml.js';

const EVERY = 5_000;

export async function showRule(main, id) {
  const [rule, { status }] = await Promise.all([get(`rules/${encodeURIComponent(id)}`), readRules()]);
  const state = stateBadge();
  const isTried = rule.candidate !== undefined && rule.candidate !== null;
  const names = ['denied', 'shadow_denied', isTried && 'candidate_denied', 'delayed', 'degraded', 'allowed'].filter(Boolean);
  const outcome = timeChart('Requests by outcome', names, { height: 190 });
  const used = countsRequests(rule) ? null : timeChart(`Use, in ${unitName(unitOf(rule))}`, ['cost'], { height: 130, saysMarks: false, unit: unitOf(rule) });
  const result = el('div');
  const choice = windowChoice((window) => { follower.choose(window); choice.show(window); });
  const text = el('div', {}, el('p', { class: 'empty' }, 'Loading…'));
  const grants = el('div');
  let stop = () => {};
  const trial = trialPanel(id, rule, async () => { stop(); stop = await showRule(main, id); });
  const source = sourceLine(status);
  const edit = changeButton('Edit', () => go(['rules', id, 'edit']), { kind: 'first', why: whyRulesAreFixed });

  put(main,
    el('div', { class: 'crumb' }, el('a', { href: '#/rules' }, 'Rules'), ' › ', rule.domain !== undefined && [el('a', { href: link(['rules'], { search: rule.domain }) }, visible(rule.domain)), ' › '], id),
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1, class: rule.stat && 'path' }, ruleText(id)),
      rule.mode === 'shadow' ? badge('accent', 'shadow: denies nothing') : badge('', 'enforced'),
      rule.quota_mode && badge('', 'quota'),
      badge('', limitWithUnit(rule)), state.element,
      el('div', { class: 'actions' }, choice.element, edit)),
    el('div', { class: 'stack' },
      rule.description && el('p', { class: 'quiet' }, rule.description),
      source,
      el('div', { class: 'columns wide-narrow' },
        el('div', { class: 'stack' }, panel('Activity', null, el('div', { class: 'stack' }, result, outcome.element, used?.element)), trial?.element, keysPanel(id, rule)),
        el('div', { class: 'stack' }, panel('Rule', null, rule.descriptor ? descriptorFacts(rule) : budgetFacts(rule), grants, text), overrideList(id, rule)))));

  readRule(id, rule).then(({ yaml, promises }) => {
    put(grants, promises && promiseList(promises));
    put(text, yamlView(yaml));
  });

  const follower = followActivity((series) => {
    outcome.show(series, id);
    used?.show(series, id);
    trial?.show(series);
    const of = series.of(id);
    const [allowed, denied, shadow] = [sum(of.allowed), sum(of.denied), sum(of.shadow_denied)];
    const asked = rule.mode === 'shadow' ? allowed + denied + shadow : allowed + denied;
    const isLeftOut = series.leftOut > 0 && !series.rules.has(id);
    put(result, isLeftOut ? notice('', null, 'This rule is not among the busiest ones, so there are no numbers for it.') : rule.mode === 'shadow'
      ? notice('', `Shadow: it would have denied ${brief(shadow)} of ${brief(asked)} requests (${percent(shadow, asked)})`, 'It denies nothing. If the number is what you expect, change `mode` to `enforce`.')
      : el('p', { class: 'quiet small' }, `${brief(denied)} of ${brief(asked)} requests denied (${percent(denied, asked)}) in this window`));
  }, state.show);
  choice.show(follower.chosen());
  stop = () => {
    follower.stop();
    outcome.stop();
    used?.stop();
    trial?.stop();
    main.querySelector('[data-stop]')?.dispatchEvent(new Event('stop'));
  };
  return () => stop();
}

/** What the rule counts, when it warns, and what becomes of reservations that are not settled. */
function budgetFacts(rule) {
  const rows = [
    ['Counts', unitName(unitOf(rule))],
    rule.warn_at !== undefined && rule.warn_at !== null && ['Warns', `once a counter has used ${rule.warn_at} % of its limit`],
    ['Unsettled', rule.unsettled === 'give_back' ? 'a reservation that expires is given back' : 'a reservation that expires keeps its estimate'],
  ].filter(Boolean);
  return el('dl', { class: 'facts budget' }, rows.map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}

/** What the limits of a rule and of its tiers admit at the most, in the words of the server. */
function promiseList({ limit, tiers }) {
  const rows = [['Worst case', limit], ...Object.entries(tiers).map(([name, promises]) => [`Tier ${visible(name)}`, promises])];
  return el('dl', { class: 'facts promises' }, rows.filter(([, promises]) => promises.length > 0)
    .map(([name, promises]) => [el('dt', {}, name), promises.map((promise) => el('dd', {}, prose(promise)))]));
}

/** The clients of a rule that were denied most, or that use most. */
function keysPanel(id, rule) {
  let [sort, window] = ['denied', '1m'];
  const unit = unitOf(rule);
  const bound = (number) => (sort === 'used' ? brieflyInUnit(number, unit) : brief(number));
  const note = el('p', { class: 'small quiet' });
  const table = sortable('Clients of this rule', [
    { name: 'Client', isHead: true, cell: (row) => [keyLink(id, row.key), isDigest(row.key) && [' ', badge('', 'secret, as a digest')]] },
    { name: 'Denied', isNumber: true, value: (row) => row.denied, cell: (row) => brief(row.denied) },
    { name: 'Used', isNumber: true, value: (row) => row.used, cell: (row) => brieflyInUnit(row.used, unit) },
    { name: 'True count', isNumber: true, isWideOnly: true, cell: (row) => (row.lower === row.upper ? `exactly ${bound(row.lower)}` : `${brief(row.lower)} to ${bound(row.upper)}`) },
    { name: 'Last seen', isNumber: true, isWideOnly: true, value: (row) => row.last_seen ?? 0, cell: (row) => (row.last_seen ? ago(row.last_seen) : '–') },
  ], { most: 20, empty: 'None in this window.' });

  async function read() {
    if (element.contains(document.activeElement) && document.activeElement.matches('tbody a')) return;
    try {
      const answer = await get(`rules/${encodeURIComponent(id)}/keys?sort=${sort}&window=${window}`);
      table.show(answer.keys.filter((row) => row[sort === 'denied' ? 'denied' : 'used'] > 0));
      const distinct = answer.distinct_denied;
      put(note, distinct !== undefined && distinct !== null && `${distinctText(Math.round(distinct))} denied. `,
        answer.shared && 'This rule shares its room with others, so the bounds are wide. ',
        answer.instances?.length > 1 && `From ${answer.instances.length} instances.`);
    } catch (problem) {
      put(note, problem.status === 404 ? 'There are no top clients: activity is off.' : prose(problem.message));
      table.show([]);
    }
  }

  const button = (label, isChosen, act) => el('button', { type: 'button', 'aria-pressed': String(isChosen), onclick: (event) => {
    for (const other of event.target.parentElement.children) other.setAttribute('aria-pressed', String(other === event.target));
    act();
    read();
  } }, label);
  const actions = [
    el('div', { class: 'choices', role: 'group', 'aria-label': 'Sorted by' }, button('Denied', true, () => { sort = 'denied'; }), button('Used', false, () => { sort = 'used'; })),
    el('div', { class: 'choices', role: 'group', 'aria-label': 'Time' }, button('1 min', true, () => { window = '1m'; }), button('1 h', false, () => { window = '1h'; })),
  ];
  const isRoute = (name) => rule.descriptor?.some(({ key, value }) => key === name && value === name);
  const per = [rule.per].flat().filter((name) => name && !isRoute(name));
  const element = panel('Top clients', actions, el('p', { class: 'small quiet' }, per.length ? `Counted by ${per.join(', ')}` : 'One counter for all requests'), table.element, note);
  element.dataset.stop = '';
  const timer = setInterval(read, EVERY);
  element.addEventListener('stop', () => clearInterval(timer));
  read();
  return element;
}

/** How many clients, the number being an estimate when it is large. */
function distinctText(number) {
  return `${number > 100 ? 'About ' : ''}${counted(number, 'different client was', 'different clients were')}`;
}
