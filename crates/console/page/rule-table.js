// The rules in a table, sorted by what they denied. As a listing it has no others, and descriptors are grouped by their domain.

import { badge, el, visible } from './dom.js';
import { brief, count, percent, rate } from './format.js';
import { ruleLink } from './keys.js';
import { limitWithUnit } from './limit-text.js';
import { nameOf } from './rules.js';
import { average, latest, sum } from './series.js';
import { sparkline } from './sparkline.js';
import { sortable } from './table.js';
import { unitName, unitOf } from './unit.js';

const NOTHING = { of: {}, missing: [], all: 0, asked: 0, share: 0, shadow: 0, used: 0, allowed: 0, denied: 0 };

/** A table of rules. `show(rules, series)` fills it; without series there are no numbers. Returns the rows shown. */
export function ruleTable({ most, empty, isListing = false }) {
  let details = new Map();
  const table = sortable('Rules, by denials', [
    { name: 'Rule', isHead: true, value: (row) => nameOf(row.rule), cell: (row) => [ruleLink(row.rule), ' ', ruleBadges(details.get(row.rule))] },
    { name: 'Limit', isWideOnly: true, cell: (row) => el('span', { class: 'small limit' }, limitWithUnit(details.get(row.rule))) },
    { name: 'Trend', isWideOnly: true, cell: (row) => sparkline(row.of.allowed, row.of.denied, row.missing) },
    { name: 'Allowed /s', isNumber: true, isWideOnly: true, value: (row) => row.allowed, cell: (row) => rate(row.allowed) },
    { name: 'Denied /s', isNumber: true, value: (row) => row.denied, cell: (row) => rate(row.denied) },
    { name: 'Denied', isNumber: true, value: (row) => row.all, cell: (row) => brief(row.all) },
    { name: 'Share', isNumber: true, isWideOnly: true, value: (row) => row.share, cell: (row) => percent(row.all, row.asked) },
    { name: 'Used /s', isNumber: true, isWideOnly: true, value: (row) => row.used, cell: (row) => [rate(row.used), ' ', el('div', { class: 'small quiet' }, unitName(unitOf(details.get(row.rule)), row.used))] },
    { name: 'Shadow', isNumber: true, isWideOnly: true, value: (row) => row.shadow, cell: (row) => brief(row.shadow) },
  ], {
    sortBy: 'Denied', most, empty,
    groupOf: (row) => (isListing ? details.get(row.rule)?.domain ?? null : null),
    groupHead: (domain, rows) => [el('bdi', {}, visible(domain)), ' ', el('span', { class: 'small quiet' }, `${count(rows.length)} ${rows.length === 1 ? 'rule' : 'rules'}, ${brief(sum(rows.map((row) => row.all)))} denied`)],
  });

  function numbers(rule, series, missing) {
    const of = series.of(rule);
    const all = sum(of.denied);
    const asked = all + sum(of.allowed);
    return { rule, of, missing, all, asked, share: asked ? all / asked : 0, shadow: sum(of.shadow_denied), used: average(of.cost, missing, series.step), allowed: latest(of.allowed, series.step), denied: latest(of.denied, series.step) };
  }

  return {
    element: el('div', { class: isListing ? 'rules listing' : 'rules' }, table.element,
      el('p', { class: 'small quiet' }, 'A request counts once in total, and once for each rule that applies to it: the numbers of the rules add up to more.')),
    show(rules, series) {
      details = new Map(rules.map((rule) => [rule.id, rule]));
      const ids = new Set([...((!isListing && series?.rules.keys()) || []), ...details.keys()]);
      const missing = series?.missing();
      const rows = [...ids].map((rule) => (series?.rules.has(rule) ? numbers(rule, series, missing) : { rule, ...NOTHING }));
      table.show(rows);
      return rows;
    },
  };
}

/** What is special about a rule. */
export const ruleBadges = (rule) => [
  rule?.mode === 'shadow' && badge('accent', 'shadow'),
  rule?.quota_mode && [' ', badge('', 'quota')],
  rule?.candidate && [' ', badge('', 'candidate')],
];
