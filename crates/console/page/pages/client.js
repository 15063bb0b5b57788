// One client: what was decided for it and why, what it does, and how to undo it. The page starts from its last real
// request; another one can be entered.

import { get, post } from '../api.js';
import { attributeForm } from '../attributes.js';
import { changeButton } from '../buttons.js';
import { clientList } from '../client-list.js';
import { confirm } from '../dialog.js';
import { badge, el, notice, panel, put, visible } from '../dom.js';
import { count } from '../format.js';
import { clientEvidence } from '../evidence.js';
import { appliedRule, headerList, otherRule, verdict } from '../explained.js';
import { hasFormOfDigest, isDigest, isForKey, keyText, namesOfKey, overrideKey, sample, takesOverrides, tellingValue } from '../keys.js';
import { lastDecision } from '../last-decision.js';
import { withUnit } from '../limit-text.js';
import { attempt, say } from '../messages.js';
import { askOverride } from '../override-dialog.js';
import { overrideRow, readOverrides } from '../overrides.js';
import { replace } from '../router.js';
import { shortName, readRules } from '../rules.js';
import { isSecret } from '../session.js';
import { inUnit, unitName, unitOf, unitsOf } from '../unit.js';

/** The attributes in the address: `a.user_id=u1`. */
function given(parameters) {
  const names = [...parameters.keys()].filter((name) => name.startsWith('a.'));
  return Object.fromEntries(names.map((name) => [name.slice(2), parameters.get(name)]));
}

const pick = (values, names) => Object.fromEntries(Object.entries(values).filter(([name]) => names.includes(name)));
const size = (values) => Object.keys(values).length;

export async function showClient(main, parameters) {
  const { rules, byId, status } = await readRules();
  const origin = byId.get(parameters.get('rule'));
  const attributes = given(parameters);
  // What names the client, of what is known of its request.
  const key = origin ? pick(attributes, namesOfKey(origin)) : size(attributes) === 1 ? attributes : {};
  const isWhole = size(attributes) > size(key);
  const names = rules.flatMap((rule) => [rule.domain !== undefined && 'domain', rule.per, Object.keys(rule.match?.attributes ?? {})].flat()).filter(Boolean);
  const form = attributeForm(attributes, names);
  const cost = el('input', { id: 'cost', type: 'number', min: 0, step: 1, value: parameters.get('cost') ?? '1' });
  // With costs by unit each rule is charged in its own; one cost is charged by all.
  const units = unitsOf(rules);
  const unit = el('select', { id: 'cost-unit', 'aria-label': 'Unit of the cost' }, el('option', { value: '' }, 'of every rule'), units.map((name) => el('option', { value: name }, unitName(name))));
  unit.value = units.includes(parameters.get('unit')) ? parameters.get('unit') : '';
  const source = el('p', { class: 'hint' }, 'What is known of a request. Explaining charges nothing.');
  const parts = { decision: el('div', { class: 'stack' }), demand: el('div'), last: el('div'), rules: el('div', { class: 'stack' }), evidence: el('div', { class: 'stack' }), others: el('div') };
  let isTouched = isWhole;
  let evidence = null;
  let list = null;

  put(main,
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, 'Client', size(key) > 0 && [' ', el('span', { class: 'mono' }, el('bdi', {}, keyText(key)))]),
      isDigest(key) && badge('', 'secret, as a digest')),
    el('div', { class: 'columns wide-narrow' },
      el('div', { class: 'stack' }, parts.decision, parts.demand, parts.rules, parts.evidence, parts.others),
      el('div', { class: 'stack' },
        parts.last,
        panel('Request', null,
          el('form', { onsubmit: attempt('Not explained', explain), oninput: () => { isTouched = true; } },
            source, form.element,
            el('div', { class: 'field' }, el('label', { for: 'cost' }, 'Cost'), el('div', { class: 'row' }, cost, units.length > 1 && unit)),
            el('button', { type: 'submit', class: 'first' }, 'Explain'))))));

  if (size(attributes) > 0 || origin) await explain();
  else {
    list = clientList(rules);
    put(parts.decision, notice('', 'Why is a client denied?', 'Find the client here, follow it from the overview or from a rule, or enter what is known of its request.'));
    put(parts.rules, list.element);
  }

  /** Explains the request in the form, or the last one of the client. */
  async function explain() {
    if (origin && !evidence) await follow(origin.id, key);
    const answer = await answered().catch((problem) => problem);
    list?.stop();
    if (answer instanceof Error) {
      put(parts.decision, notice('bad', 'Not explained', answer.message), size(key) > 0 && origin && isDigest(key) && el('div', { class: 'row' }, overrideButton(origin, overrideKey(origin, key))));
      put(parts.rules);
      return;
    }
    const applied = answer.rules.filter((rule) => rule.applies);
    const deciding = applied.find((rule) => rule.rule === (answer.decision.rule ?? origin?.id)) ?? applied[0];
    const followed = size(key) > 0 && origin ? applied.find((rule) => rule.rule === origin.id) ?? { rule: origin.id, key, limits: [] } : deciding;
    await follow(followed?.rule, followed?.key ?? {}, followed?.limits);
    await show(answer, applied, deciding);
  }

  /** The answer for the last real request of the client, for what was entered, or for an example. */
  async function answered() {
    if (isTouched) return explainAttributes(form.values());
    const example = sample(origin);
    if (size(key) > 0) {
      const named = { client: tellingValue(key), ...(origin ? { rule: origin.id } : {}), ...costOf() };
      const found = await post('explain', named).catch((problem) => problem);
      const isOfKey = size(key) === 1 || isDigest(key) || Object.entries(key).every(([name, value]) => found.attributes?.[name] === value);
      if (!(found instanceof Error) && isOfKey && (found.last || isDigest(key))) return filledWith(found.attributes, found.last, found);
      if (isDigest(key)) throw found;
      // Several clients may have this value; the row of this one has its last request.
      const seen = evidence?.last()?.attributes;
      if (seen && !isDigest(seen)) return filledWith(seen, true, explainAttributes(seen, { keepsAddress: true }));
    }
    const filled = Object.keys(example).filter((name) => !(name in key) && example[name] !== '');
    form.fill({ ...example, ...key });
    put(source, filled.length > 0 ? `No request of this client was seen lately. This is an example, so that ${shortName(origin.id)} applies: ${filled.join(', ')}.` : 'What is known of a request. Explaining charges nothing.');
    return explainAttributes(form.values(), { keepsAddress: true });
  }

  function filledWith(seen, isRequest, answer) {
    form.fill(seen);
    put(source, isRequest ? 'The last request of this client. Explaining charges nothing.' : 'What is known of this client. Explaining charges nothing.');
    return answer;
  }

  function costOf() {
    if (unit.value !== '') return { costs: { [unit.value]: Number(cost.value) } };
    return cost.value === '1' ? {} : { cost: Number(cost.value) };
  }

  /** The same for the address of the page. */
  function costShown() {
    if (unit.value === '') return costOf();
    return { cost: cost.value, unit: unit.value };
  }

  async function explainAttributes(entered, { keepsAddress = false } = {}) {
    const shown = Object.entries(entered).filter(([name, value]) => !isSecret(name) || hasFormOfDigest(value)).map(([name, value]) => [`a.${name}`, value]);
    if (!keepsAddress) replace(['client'], { ...(origin ? { rule: origin.id } : {}), ...Object.fromEntries(shown), ...costShown() });
    return post('explain', { attributes: entered, ...costOf() });
  }

  /** Shows what a client of a rule does, as long as the page is open. */
  async function follow(rule, ofKey, limits = []) {
    if (!rule || size(ofKey) === 0 || !status.activity) return;
    const name = JSON.stringify([rule, ofKey]);
    if (evidence?.name !== name) {
      evidence?.stop();
      evidence = Object.assign(clientEvidence(rule, ofKey, unitOf(byId.get(rule))), { name });
      put(parts.demand, evidence.demand);
      put(parts.evidence, evidence.panels);
    }
    evidence.compareWith(limits);
    await evidence.read().catch(() => {});
  }

  async function show(answer, applied, deciding) {
    const others = answer.rules.filter((rule) => !rule.applies);
    const value = deciding && overriddenValue(deciding);
    const actions = [
      value !== undefined && overrideButton(byId.get(deciding.rule), value, deciding.grant?.value),
      deciding && size(deciding.key ?? {}) > 0 && changeButton('Reset counters…', () => askReset(deciding)),
    ];
    const cards = await Promise.all(applied.map((rule) => card(rule, deciding)));
    const last = answer.last ?? evidence?.last();
    put(parts.decision, verdict(answer.decision, actions, { times: evidence?.times(), unit: unitOf(byId.get(answer.decision.rule)) }));
    put(parts.last, last && panel('Last decision', null, lastDecision(last, shortName(origin?.id ?? deciding?.rule), { hasSeveral: status.instances > 1, unit: unitOf(origin ?? byId.get(deciding?.rule)) })));
    put(parts.rules,
      applied.length > 0 && panel(applied.length === 1 ? 'The rule that applies' : `The ${applied.length} rules that apply`, null, cards, headerList(answer.headers)));
    put(parts.others, others.length > 0 && panel(`Rules that do not apply (${count(others.length + (answer.omitted ?? 0))})`, null,
      el('details', { open: applied.length === 0 || undefined }, el('summary', {}, 'Show why not'), el('ul', { class: 'timeline' }, others.map(otherRule)), answer.omitted > 0 && el('p', { class: 'small quiet' }, `${count(answer.omitted)} others are left out.`))));
  }

  /** A rule that applies, with its override if it has one. */
  async function card(rule, deciding) {
    const isTemporary = rule.grant?.from === 'temporary';
    const own = overriddenValue(rule);
    const more = rule !== deciding && own !== undefined && !isTemporary && overrideButton(byId.get(rule.rule), own, rule.grant?.value, 'plain');
    const shown = appliedRule(rule, more, withTier);
    if (isTemporary) {
      const all = await readOverrides(rule.rule).catch(() => []);
      const mine = all.filter((override) => isForKey(override, own));
      shown.append(el('ul', { class: 'timeline' }, mine.map((override) => overrideRow(override, byId.get(rule.rule), explain))));
    }
    return shown;
  }

  /** Explains again as if the client had this tier. */
  async function withTier(tier) {
    form.fill({ ...form.values(), tier });
    isTouched = true;
    await explain();
  }

  /** The value of the client that overrides of a rule are by. */
  function overriddenValue(explained) {
    const rule = byId.get(explained.rule);
    return takesOverrides(rule) && explained.key ? overrideKey(rule, explained.key) : undefined;
  }

  function overrideButton(rule, value, now, kind = 'first') {
    return changeButton('Override…', () => askOverride(rule, value, { now, onDone: explain }), { kind });
  }

  /** Asks, and forgets the counters of the client for a rule. One that all clients share is not reset here. */
  function askReset({ rule, key: counted }) {
    const text = `What ${keyText(counted)} has used of ${shortName(rule)} is forgotten: it has the whole limit again.`;
    return confirm('Reset the counters?', text, 'Reset', attempt('Nothing was reset', async () => {
      const { reset } = await post('reset', { attributes: form.values(), rule });
      say('good', 'Reset', reset.slice(0, 3).map((counter) => `${shortName(counter.rule)} (${withUnit(counter.limit, byId.get(counter.rule))}): ${inUnit(counter.used, unitOf(byId.get(counter.rule)))} used, ${visible(Object.values(counter.key).join(', '))}`).join('; '));
      await explain();
    }), 'danger');
  }

  return () => {
    evidence?.stop();
    list?.stop();
  };
}
