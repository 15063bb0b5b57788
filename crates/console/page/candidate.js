// What is tried of a rule: the candidate next to the limit, the clients that it would newly deny, the rollout, and the
// promotion with a preview.

import { ask, get } from './api.js';
import { changeButton, rulesFile, whyRulesAreFixed } from './buttons.js';
import { openDialog } from './dialog.js';
import { unified } from './diff.js';
import { badge, el, notice, panel, put, visible } from './dom.js';
import { brief, counted, percent } from './format.js';
import { isDigest, keyLink } from './keys.js';
import { limitText } from './limit-text.js';
import { attempt, say } from './messages.js';
import { candidateText, promoted } from './promoted.js';
import { sum } from './series.js';
import { sortable } from './table.js';
import { yamlOf, yamlView } from './yaml.js';

const EVERY = 5_000;

/** The panel of what is tried, or `null` if nothing is. `show(series)` takes the newest counts. */
export function trialPanel(id, rule, onChange) {
  if (!promoted(rule)) return null;
  const path = `rules/${encodeURIComponent(id)}`;
  const hasCandidate = rule.candidate !== undefined && rule.candidate !== null;
  const result = el('div');
  const clients = hasCandidate ? newlyDenied(id) : null;
  const actions = [
    rule.mode !== 'shadow' && changeButton('Rollout…', attempt('The rollout was not changed', rollOut), { why: whyReadOnlyButShown }),
    changeButton('Promote…', attempt('Nothing was promoted', preview), { kind: 'first', why: whyReadOnlyButShown }),
  ];
  const facts = el('dl', { class: 'facts' },
    hasCandidate && [el('dt', {}, 'Limit'), el('dd', {}, limitText(rule)), el('dt', {}, 'Candidate'), el('dd', {}, visible(candidateText(rule)))],
    el('dt', {}, 'Decides'), el('dd', {}, whoDecides(rule, hasCandidate)));
  const element = panel(hasCandidate ? 'Candidate' : rule.rollout ? 'Rollout' : 'Shadow', actions,
    el('div', { class: 'stack' }, facts, result, clients?.element));

  function show(series) {
    if (!hasCandidate) return;
    const of = series.of(id);
    const [allowed, denied, tried] = [sum(of.allowed), sum(of.denied) + sum(of.shadow_denied), sum(of.candidate_denied)];
    const all = allowed + denied;
    put(result, notice('', `Would have been denied: ${brief(tried)} of ${brief(all)} requests (${percent(tried, all)})`,
      `${rule.rollout ? 'Denied by what decided:' : 'The limit denied'} ${brief(denied)} (${percent(denied, all)}) in this window. The candidate has its own counters, also for requests that the limit denies.`));
  }

  /** Without the scope to change rules nothing is offered; rules of a file are shown as they have to be written. */
  function whyReadOnlyButShown() {
    return rulesFile() ? null : whyRulesAreFixed();
  }

  async function rollOut() {
    const share = el('input', { id: 'r-share', value: rule.rollout ?? '10%', autofocus: true, required: true, autocomplete: 'off', spellcheck: 'false' });
    const message = el('div');
    await openDialog(`Roll out ${id}`, (close) => [
      el('p', { class: 'quiet small' }, hasCandidate ? 'For this share of the keys the candidate decides, and the limit only counts. Raising it takes no key out.' : 'For this share of the keys the rule decides; for the others it only counts. Raising it takes no key out.'),
      el('div', { class: 'field' }, el('label', { for: 'r-share' }, 'Share of the keys'), share),
      message,
      el('div', { class: 'actions' },
        el('button', { type: 'button', onclick: close }, 'Cancel'),
        el('button', { type: 'button', class: 'first', onclick: () => set(share.value.trim(), message, close) }, 'Set')),
    ]);
  }

  async function set(rollout, message, close) {
    const { worst_case: _computed, ...body } = { ...rule, rollout };
    if (rulesFile()) {
      close();
      await showLines(body);
      return;
    }
    try {
      const { etag } = await ask('GET', path);
      await ask('PUT', path, { body, ifMatch: etag });
      close();
      say('good', `${id} is rolled out to ${visible(rollout)} of its keys`, 'It applies now. “Changes” has the version before.');
      onChange();
    } catch (problem) {
      put(message, notice('bad', 'Not set', problem.message));
    }
  }

  async function preview() {
    if (rulesFile()) {
      await showLines(promoted(rule));
      return;
    }
    const { body, etag } = await ask('POST', `${path}/promote`, { body: { dry_run: true } });
    await openDialog(`Promote ${id}?`, (close) => [
      el('p', { class: 'quiet small' }, 'This is what changes. It applies to all requests immediately; “Changes” can roll it back. What was used of the limit stays used.'),
      unified(body.text),
      el('div', { class: 'actions' },
        el('button', { type: 'button', onclick: close }, 'Cancel'),
        el('button', { type: 'button', class: 'first', autofocus: true, onclick: () => { close(); return promote(etag); } }, 'Promote')),
    ], { isWide: true });
  }

  async function promote(etag) {
    try {
      await ask('POST', `${path}/promote`, { body: {}, ifMatch: etag });
      say('good', `${id} was promoted`, 'It applies now. “Changes” has the version before.');
    } catch (problem) {
      const isStale = problem.status === 412;
      say('bad', isStale ? `Conflict: ${id} was changed meanwhile` : 'Nothing was promoted', isStale ? 'Nothing was promoted. Look at the rule, and preview again.' : problem.message);
    }
    onChange();
  }

  async function showLines(body) {
    const yaml = await yamlOf(id, body);
    await openDialog(`Write this in ${rulesFile()}`, (close) => [
      el('p', { class: 'quiet small' }, 'The rules come from this file. The server reads it again when it changes.'),
      yamlView(yaml),
      el('div', { class: 'actions' }, el('button', { type: 'button', autofocus: true, onclick: close }, 'Close')),
    ], { isWide: true });
  }

  return { element, show, stop: () => clients?.stop() };
}

/** Who decides for which keys, in words. */
function whoDecides(rule, hasCandidate) {
  if (rule.mode === 'shadow') return 'nothing: the rule only counts';
  if (!rule.rollout) return 'the limit; the candidate only counts';
  return hasCandidate ? `the candidate for ${visible(rule.rollout)} of the keys, the limit for the others` : `the rule for ${visible(rule.rollout)} of the keys; for the others it only counts`;
}

/** The clients that the candidate denies, or would deny, most. */
function newlyDenied(id) {
  const note = el('p', { class: 'small quiet' });
  const table = sortable('Clients that the candidate denies', [
    { name: 'Client', isHead: true, cell: (row) => [keyLink(id, row.key), isDigest(row.key) && [' ', badge('', 'secret, as a digest')], row.denied === 0 && [' ', badge('careful', 'newly denied')]] },
    { name: 'By candidate', isNumber: true, value: (row) => row.candidate_denied, cell: (row) => brief(row.candidate_denied) },
    { name: 'Denied', isNumber: true, value: (row) => row.denied, cell: (row) => brief(row.denied) },
  ], { most: 20, empty: 'None in the last hour.' });
  const element = el('div', {}, el('h3', {}, 'Would have been denied, last hour'), table.element, note);

  async function read() {
    if (element.contains(document.activeElement) && document.activeElement.matches('tbody a')) return;
    try {
      const answer = await get(`rules/${encodeURIComponent(id)}/keys?sort=candidate_denied&window=1h`);
      table.show(answer.keys.filter((row) => row.candidate_denied > 0));
      put(note, answer.distinct_denied > 0 && `${counted(Math.round(answer.distinct_denied), 'client')} in all.`);
    } catch {
      table.show([]);
    }
  }

  const timer = setInterval(read, EVERY);
  read();
  return { element, stop: () => clearInterval(timer) };
}
