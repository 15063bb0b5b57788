// All rules: their limits, modes, and what they denied in the last hour.

import { followActivity, WINDOWS } from '../activity.js';
import { stateBadge, windowChoice } from '../activity-state.js';
import { get } from '../api.js';
import { changeButton, rulesFile, whyRulesAreFixed } from '../buttons.js';
import { badge, el, notice, panel, put } from '../dom.js';
import { counted } from '../format.js';
import { readStatus } from '../health.js';
import { go } from '../router.js';
import { ruleTable } from '../rule-table.js';

export async function showRules(main) {
  const [{ rules }] = await Promise.all([get('rules'), readStatus()]);
  const state = stateBadge();
  const choice = windowChoice((window) => { follower.choose(window); choice.show(window); });
  const table = ruleTable({ most: 200, empty: 'No rules yet: every request is allowed. Add the first one.' });
  const add = changeButton('Add a rule', () => go(['add-rule']), { kind: 'first', why: whyRulesAreFixed });
  put(main,
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, 'Rules'), badge('', counted(rules.length, 'rule')), state.element, el('div', { class: 'actions' }, choice.element, add)),
    el('div', { class: 'stack' },
      rulesFile() && notice('', 'Rules come from a file', el('span', {}, 'Read-only here. Change ', el('code', {}, rulesFile()), ' on the server; it is read again when it changes.')),
      panel('All rules', null, table.element)));
  table.show(rules);
  const follower = followActivity((series) => table.show(rules, series), state.show, WINDOWS[1]);
  choice.show(follower.chosen());
  return () => follower.stop();
}
