// The history of the rules: who changed what and when, and the way back.

import { ask, get } from '../api.js';
import { changeButton, whyRulesAreFixed } from '../buttons.js';
import { openDialog } from '../dialog.js';
import { unified } from '../diff.js';
import { badge, el, notice, panel, prose, put, visible } from '../dom.js';
import { ago, count, dateTime, withTimes } from '../format.js';
import { attempt, say } from '../messages.js';
import { readRules, withNames } from '../rules.js';
import { sourceLine } from '../source.js';

export async function showChanges(main, chosen) {
  const [{ history }, { status }] = await Promise.all([get('rules/history'), readRules()]);
  const source = sourceLine(status);
  const current = status.rules?.version ?? history[0]?.version;
  const rows = history.map((row, index) => {
    const before = history.slice(index + 1).find((other) => other.version < row.version)?.version ?? 0;
    return changeRow(row, { isCurrent: row.version === current, before, isOpen: String(row.version) === chosen });
  });
  put(main,
    el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, 'Changes'), current !== undefined && badge('', `version ${count(current)} in force`)),
    el('div', { class: 'stack' },
      source,
      panel('History', null, rows.length > 0 ? el('ol', { class: 'timeline' }, rows) : el('p', { class: 'empty' }, 'No change yet.'))));
  main.querySelector('details[open]')?.scrollIntoView({ block: 'center' });

  function changeRow(row, { isCurrent, before, isOpen }) {
    // Temporary overrides have rows too, with the version of the rules at the time.
    const isVersion = !row.override;
    const diff = el('div', {}, el('p', { class: 'empty' }, 'Loading…'));
    const details = isVersion && el('details', { ontoggle: () => { if (details.open) loadDiff(diff, before, row.version); } }, el('summary', {}, `What version ${row.version} changed`), diff);
    if (details && isOpen) details.open = true;
    return el('li', {},
      el('div', { class: 'row' },
        el('h3', {}, isVersion ? `Version ${row.version}` : 'Temporary override'), isVersion && isCurrent && badge('good', 'in force'),
        el('span', { class: 'small quiet' }, `${dateTime(row.at)}, ${ago(row.at)}, by `, el('b', {}, visible(row.by))),
        isVersion && !isCurrent && el('div', { class: 'actions' }, changeButton('Roll back to this…', attempt('Nothing was rolled back', () => preview(row.version)), { why: whyRulesAreFixed }))),
      el('div', { class: 'change' }, prose(withNames(withTimes(row.changes.slice(0, 8).map(visible).join(', ')))), row.changes.length > 8 && ` and ${row.changes.length - 8} more`),
      details);
  }

  async function loadDiff(into, from, to) {
    try {
      const { text } = await get(`rules/diff?from=${from}&to=${to}`);
      put(into, text ? unified(text) : el('p', { class: 'empty' }, 'No difference.'));
    } catch (problem) {
      put(into, notice('careful', null, problem.message));
    }
  }

  /** Shows what a rollback would change, and does it if the reader agrees. */
  async function preview(version) {
    const { body, etag } = await ask('POST', 'rules/rollback', { body: { version, dry_run: true } });
    await openDialog(`Roll back to version ${version}?`, (close) => [
      el('p', { class: 'quiet small' }, `This is what changes. It becomes a new version, applies immediately, and can be rolled back too. Counters and temporary overrides stay.`),
      body.text ? unified(body.text) : el('p', { class: 'empty' }, 'Nothing: the rules are the same.'),
      el('div', { class: 'actions' },
        el('button', { type: 'button', onclick: close }, 'Cancel'),
        body.text && el('button', { type: 'button', class: 'first', autofocus: true, onclick: () => { close(); return rollBack(version, etag); } }, `Roll back to version ${version}`)),
    ], { isWide: true });
  }

  async function rollBack(version, etag) {
    try {
      const { body } = await ask('POST', 'rules/rollback', { body: { version }, ifMatch: etag });
      say('good', `Back to version ${version}`, `It is in force as version ${body.version}.`);
      await showChanges(main);
    } catch (problem) {
      if (problem.status !== 412) {
        say('bad', 'Nothing was rolled back', problem.message);
        return;
      }
      await showChanges(main);
      say('bad', 'Conflict: the rules were changed meanwhile', 'Nothing was rolled back. Look at the newest change, and preview again.');
    }
  }
}
