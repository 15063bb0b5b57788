// One client: what would be decided for a request of it and why, and how to undo it.

import { get, post } from '../api.js';
import { attributeForm } from '../attributes.js';
import { changeButton } from '../buttons.js';
import { confirm } from '../dialog.js';
import { el, notice, panel, put, visible } from '../dom.js';
import { appliedRule, headerList, otherRule, verdict } from '../explained.js';
import { brief, count } from '../format.js';
import { readStatus } from '../health.js';
import { isDigest, keyText, sample } from '../keys.js';
import { attempt, say } from '../messages.js';
import { askOverride, overriddenBy, overrideRow, readOverrides } from '../overrides.js';
import { replace } from '../router.js';
import { isSecret } from '../session.js';

/** The attributes in the address: `a.user_id=u1`. */
function given(parameters) {
  const names = [...parameters.keys()].filter((name) => name.startsWith('a.'));
  return Object.fromEntries(names.map((name) => [name.slice(2), parameters.get(name)]));
}

export async function showClient(main, parameters) {
  const [{ rules }, status] = await Promise.all([get('rules'), readStatus()]);
  const byId = new Map(rules.map((rule) => [rule.id, rule]));
  const key = given(parameters);
  const origin = byId.get(parameters.get('rule'));
  const filled = Object.fromEntries(Object.entries(sample(origin)).filter(([name]) => !(name in key)));
  const isHidden = origin !== undefined && isDigest(key);
  // A digest names the client, but is not the value that is counted by.
  const known = isHidden ? Object.fromEntries(Object.entries(key).map(([name, value]) => [name, isSecret(name) ? '' : value])) : key;
  const names = rules.flatMap((rule) => [rule.per, Object.keys(rule.match?.attributes ?? {})].flat()).filter(Boolean);
  const form = attributeForm({ ...known, ...filled }, names);
  const cost = el('input', { id: 'cost', type: 'number', min: 0, step: 1, value: parameters.get('cost') ?? '1' });
  const result = el('div', { class: 'stack' });

  const submit = attempt('Not explained', explain);
  put(main,
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, 'Client', Object.keys(key).length > 0 && [' ', el('span', { class: 'mono' }, el('bdi', {}, keyText(key)))])),
    el('div', { class: 'columns wide-narrow' },
      result,
      panel('Request', null,
        el('form', { onsubmit: submit },
          el('p', { class: 'hint' }, 'What is known of a request. Explaining charges nothing.'),
          Object.keys(filled).length > 0 && el('p', { class: 'hint' }, `Filled in so that ${origin.id} applies: ${Object.keys(filled).join(', ')}.`),
          form.element,
          el('div', { class: 'field' }, el('label', { for: 'cost' }, 'Cost'), cost),
          el('button', { type: 'submit', class: 'first' }, 'Explain')))));

  if (isHidden) {
    put(result, notice('', `${keyText(key)} is secret`, el('p', {}, 'It is shown as a digest. To explain and to reset, enter its value in the request. An override works with the digest alone.'),
      el('div', { class: 'row' }, overrideButton(origin, Object.values(key)[0]))), await recent(), await overridesOf(origin.id, Object.values(key)[0]));
  } else if (Object.keys(key).length > 0) await explain();
  else put(result, notice('', 'Why is a client denied?', 'Enter what is known of its request, or follow a client from the overview or from a rule.'));

  function overrideButton(rule, value) {
    return changeButton('Override…', () => askOverride(rule, value, explain), { kind: 'first' });
  }

  async function overridesOf(id, value) {
    const all = await readOverrides(id).catch(() => []);
    const own = value === undefined ? all : all.filter((override) => override.key === value || (override.digest && value.endsWith(override.digest)));
    return own.length > 0 && el('ul', { class: 'timeline' }, own.map((override) => overrideRow(id, override, explain)));
  }

  /** What the rule that led here has decided for this client lately. One allowed request says little. */
  async function recent() {
    if (!origin || !status.activity || Object.keys(key).length === 0) return null;
    const answer = await get(`rules/${encodeURIComponent(origin.id)}/keys?sort=denied&window=1m&limit=100`).catch(() => null);
    const names = Object.keys(key);
    const row = answer?.keys.find((other) => names.every((name) => other.key[name] === key[name]));
    if (!row || row.denied === 0) return null;
    return notice('careful', `Denied ${brief(row.denied)} times in the last minute by ${origin.id}`, `Its admitted requests cost ${brief(row.used)} in the same time.`);
  }

  /** The value of the client that overrides of a rule are by. */
  function overriddenValue(explained) {
    const by = overriddenBy(byId.get(explained.rule));
    return by && explained.key ? explained.key[by] : undefined;
  }

  async function explain() {
    const attributes = form.values();
    if (Object.keys(attributes).length === 0) {
      if (isHidden) put(result, await overridesOf(origin.id, Object.values(key)[0]));
      return;
    }
    const shown = Object.entries(attributes).filter(([name]) => !isSecret(name)).map(([name, value]) => [`a.${name}`, value]);
    replace(['client'], { ...(origin ? { rule: origin.id } : {}), ...Object.fromEntries(shown), ...(cost.value === '1' ? {} : { cost: cost.value }) });
    const answer = await post('explain', { attributes, cost: Number(cost.value) }).catch((problem) => problem);
    if (answer instanceof Error) {
      put(result, notice('bad', 'Not explained', answer.message));
      return;
    }
    const applied = answer.rules.filter((rule) => rule.applies);
    const others = answer.rules.filter((rule) => !rule.applies);
    const deciding = applied.find((rule) => rule.rule === (answer.decision.rule ?? origin?.id)) ?? applied[0];
    const value = deciding && overriddenValue(deciding);
    const reset = changeButton('Reset counters…', () => askReset(attributes));
    const actions = [value !== undefined && overrideButton(byId.get(deciding.rule), value), applied.length > 0 && reset];
    const cards = await Promise.all(applied.map(async (rule) => {
      const isTemporary = rule.grant?.from === 'temporary';
      const own = overriddenValue(rule);
      const more = rule !== deciding && own !== undefined && !isTemporary && changeButton('Override…', () => askOverride(byId.get(rule.rule), own, explain), { kind: 'plain' });
      const card = appliedRule(rule, more);
      const list = isTemporary && await overridesOf(rule.rule, own);
      if (list) card.append(list);
      return card;
    }));
    put(result,
      verdict(answer.decision, actions),
      await recent(),
      applied.length > 0 && panel(applied.length === 1 ? 'The rule that applies' : `The ${applied.length} rules that apply`, null, cards, headerList(answer.headers)),
      others.length > 0 && panel(`Rules that do not apply (${others.length})`, null,
        el('details', { open: applied.length === 0 || undefined }, el('summary', {}, 'Show why not'), el('ul', { class: 'timeline' }, others.map(otherRule)))));
  }

  function askReset(attributes) {
    const text = 'All counters of these attributes are forgotten: the client has its whole limits again. Counters that all clients share stay.';
    return confirm('Reset the counters?', text, 'Reset', attempt('Nothing was reset', async () => {
      const { reset } = await post('reset', { attributes });
      say('good', 'Reset', reset.map((counter) => `${counter.rule} (${counter.limit}): ${count(counter.used)} used, ${visible(Object.values(counter.key).join(', '))}`).slice(0, 3).join('; '));
      await explain();
    }), 'danger');
  }
}
