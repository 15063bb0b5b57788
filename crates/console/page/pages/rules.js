// All rules: their limits, modes, and what they denied in the last hour. There can be thousands, found by a search.

import { followActivity, WINDOWS } from '../activity.js';
import { stateBadge, windowChoice } from '../activity-state.js';
import { changeButton, whyRulesAreFixed, whyRulesComeFromElsewhere } from '../buttons.js';
import { badge, el, panel, put } from '../dom.js';
import { count } from '../format.js';
import { readStatus } from '../health.js';
import { limitWithUnit } from '../limit-text.js';
import { go, replace } from '../router.js';
import { readRules } from '../rules.js';
import { ruleTable } from '../rule-table.js';
import { sourceLine } from '../source.js';

// How long typing must pause, in milliseconds.
const PAUSE = 150;

/** The rules, or none if the server does not know any yet. */
const rulesOrNone = () => readRules().catch(async (problem) => {
  if (problem.status !== 503) throw problem;
  return { rules: [], status: await readStatus() };
});

/** The text that a rule is found by. */
const textOf = (rule) => [rule.stat, rule.id, rule.domain, limitWithUnit(rule), rule.mode, rule.description].join(' ').toLowerCase();

export async function showRules(main, parameters) {
  let { rules, status } = await rulesOrNone();
  let [texts, series, timer] = [[], null, 0];
  const state = stateBadge();
  const choice = windowChoice((window) => { follower.choose(window); choice.show(window); });
  const number = badge('', '');
  const empty = () => {
    if (rules.length > 0) return 'No rule has this in its name, domain or limit.';
    if (status.rules?.version === 0 && whyRulesComeFromElsewhere()) return 'No rules are known yet.';
    return `No rules${whyRulesComeFromElsewhere() ? '' : ' yet'}: every request is allowed.${whyRulesComeFromElsewhere() ? '' : ' Add the first one.'}`;
  };
  const table = ruleTable({ most: 200, isListing: true, empty });
  const source = sourceLine(status, followVersion);
  const add = changeButton('Add a rule', () => go(['add-rule']), { kind: 'first', why: whyRulesAreFixed });
  const search = el('input', { type: 'search', id: 'rule-search', value: parameters.get('search') ?? '', 'aria-label': 'Search for rules', placeholder: 'Name, domain or limit', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off', oninput: () => { clearTimeout(timer); timer = setTimeout(searched, PAUSE); } });
  const found = el('p', { class: 'small quiet', role: 'status' });
  put(main,
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, 'Rules'), number, state.element, el('div', { class: 'actions' }, choice.element, add)),
    el('div', { class: 'stack' }, source, panel('All rules', null, el('div', { class: 'field' }, search, found), table.element)));

  function take() {
    number.textContent = `${count(rules.length)} ${rules.length === 1 ? 'rule' : 'rules'}`;
    texts = rules.map(textOf);
    show();
  }

  function searched() {
    const text = search.value.trim();
    // A page that is left and returned to shows the same.
    replace(['rules'], text ? { search: text } : {});
    show();
  }

  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = rules.filter((_, index) => words.every((word) => texts[index].includes(word)));
    found.textContent = words.length > 0 ? `${count(matching.length)} of ${count(rules.length)} found` : '';
    table.show(matching, series);
  }

  async function followVersion(next) {
    if (next.rules === undefined || next.rules.version === status.rules?.version) return;
    ({ rules, status } = await rulesOrNone());
    take();
  }

  take();
  const follower = followActivity((next) => { series = next; show(); }, state.show, WINDOWS[1]);
  choice.show(follower.chosen());
  return () => {
    clearTimeout(timer);
    follower.stop();
  };
}
