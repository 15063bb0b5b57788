// Where the rules come from if they are not changed here, which of them are in force and how old they are; in red, and in
// words, if the source is away or its last change was refused.

import { badge, el, prose, put } from './dom.js';
import { ago, count, dateTime } from './format.js';
import { readStatus } from './health.js';

const [EVERY, TICK] = [5_000, 1_000];

/** What is to be said of the source: how bad it is, in a word, in a sentence, and why. */
function stateOf({ status, problem: unreachable, rules = {} }) {
  const { source, version, connected, failure, kept, problem } = rules;
  if (status === 'unreachable') return { kind: 'bad', word: 'unknown', title: 'This server does not answer; what is shown may be old', why: [unreachable].filter(Boolean) };
  const then = version === 0 ? 'no rules are known, and calls fail' : kept ? 'the last good rules are in force' : 'the rules in force stay';
  const isAway = source === 'xds' && !connected;
  const why = [isAway && failure, problem && (isAway ? `Its last change was refused: ${problem}` : problem)].filter(Boolean);
  if (isAway && failure) return { kind: 'bad', word: 'away', title: `The management server is away; ${then}`, why };
  if (problem) return { kind: 'bad', word: 'refused', title: `The last change of the rules was refused; ${then}`, why };
  if (isAway) return { kind: 'careful', word: 'connecting', title: `Connecting to the management server; ${then}`, why };
  if (source === 'xds' && (kept || version === 0)) return { kind: 'careful', word: 'waiting', title: `The management server has not answered yet; ${then}`, why };
  return { kind: '', word: source === 'xds' ? 'connected' : '', title: '', why };
}

/** Source and version in words, with the age of the rules in an element of its own. */
function factsOf(rules, age) {
  if (rules.source !== 'xds') return [`Rules of the ${rules.source} `, el('b', { class: 'mono' }, rules.file), `, version ${count(rules.version)}, read again when it changes`];
  const server = ['Rules of the management server ', el('b', { class: 'mono' }, rules.server)];
  const received = rules.received !== null && [', version ', el('b', { class: 'mono' }, rules.server_version || 'without a name'), ', received ', age, ` (${dateTime(rules.received)})`];
  return [server, received || ', nothing received yet', ', node ', el('span', { class: 'mono' }, rules.node)];
}

/** The source, or nothing if rules are changed here. With `onlyTrouble` it is there only if something is wrong. */
export function sourceView({ onlyTrouble = false } = {}) {
  const element = el('section', { 'aria-label': 'Source of the rules', hidden: true });
  const age = el('b');
  let [rules, shown] = [{}, ''];

  function tick() {
    if (rules.received) age.textContent = ago(rules.received);
    // It ends with its page.
    if (!element.isConnected) clearInterval(timer);
  }

  function show(status) {
    rules = status.rules ?? rules;
    if (rules.received) age.textContent = ago(rules.received);
    const state = stateOf({ ...status, rules });
    element.hidden = !['xds', 'folder', 'file'].includes(rules.source) || (onlyTrouble && state.kind === '');
    // An alert is read out when it is put here: only if it is another.
    const next = JSON.stringify([element.hidden, state, rules]);
    if (next === shown) return;
    shown = next;
    element.className = `notice source ${state.kind}`;
    put(element, !element.hidden && [
      state.title && el('strong', { role: state.kind === 'bad' ? 'alert' : 'status' }, state.title),
      state.why.map((text) => el('p', {}, prose(text))),
      el('p', { class: 'small' }, state.word && [badge(state.kind || 'good', state.word), ' '], factsOf(rules, age), '.'),
    ]);
  }

  const timer = setInterval(tick, TICK);
  return { element, show };
}

/** The source, read again as long as its page is shown. `onStatus` is called with each status. */
export function sourceLine(first, onStatus = () => {}) {
  const { element, show } = sourceView();
  async function read() {
    if (!element.isConnected) {
      clearInterval(timer);
      return;
    }
    const status = await readStatus();
    show(status);
    await onStatus(status);
  }
  show(first);
  const timer = setInterval(() => read().catch(() => {}), EVERY);
  return element;
}
