// The health of the server: its store, its instances, its rules.

import { get } from './api.js';
import { badge, el, notice, put } from './dom.js';
import { setOrigin, whyRulesComeFromElsewhere } from './buttons.js';
import { ago, count, dateTime, span } from './format.js';

const WORDS = { ready: ['good', 'Ready'], degraded: ['careful', 'Degraded'], 'not ready': ['bad', 'Not ready'], draining: ['careful', 'Draining'] };

export function statusBadge(status) {
  const [kind, word] = WORDS[status] ?? ['bad', 'Unreachable'];
  return badge(kind, word);
}

/** The status of the server, or what stands for it if it does not answer. */
export async function readStatus() {
  try {
    const status = await get('status');
    setOrigin(status.rules ?? {});
    return status;
  } catch (problem) {
    return { status: 'unreachable', problem: problem.message };
  }
}

/** A list of facts; `show(status, instances)` fills it. */
export function healthFacts() {
  const element = el('div', { class: 'stack' });
  function show(status, instances = []) {
    const { store = {}, rules = {}, snapshot } = status;
    const facts = [
      ['Server', [statusBadge(status.status), ` version ${status.version ?? '–'}, up ${span(Math.floor(status.uptime ?? 0))}`]],
      ['Store', store.kind === 'redis' ? 'Redis' : 'in memory'],
      store.latency !== undefined && store.latency !== null && ['Latency', span(store.latency)],
      store.breaker && ['Circuit breaker', store.breaker === 'closed' ? 'closed: Redis decides' : badge('bad', store.breaker)],
      store.degraded_since && ['Without Redis', badge('bad', `since ${dateTime(store.degraded_since)}`)],
      ['Instances', instanceList(status, instances)],
      ['Rules', `${count(rules.count)} in version ${count(rules.version)}, from ${rules.server ?? rules.file ?? rules.source ?? '–'}`],
      status.keys !== undefined && status.keys !== null && ['Keys in memory', count(status.keys)],
      status.leases ? ['Leases out', count(status.leases)] : null,
      status.reservations !== undefined && ['Open reservations', count(status.reservations)],
      snapshot && ['Counters saved', snapshot.last_written ? ago(snapshot.last_written) : 'not yet'],
    ].filter(Boolean);
    // That of another source is shown with it.
    const problems = [status.problem, store.problem, whyRulesComeFromElsewhere() ? null : rules.problem, snapshot?.problem, ...(status.warnings ?? [])];
    put(element,
      el('dl', { class: 'facts' }, facts.map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])),
      [...new Set(problems.filter(Boolean))].map((problem) => notice('careful', null, problem)));
  }
  return { element, show };
}

function instanceList(status, instances) {
  if (instances.length <= 1) return count(typeof status.instances === 'number' ? status.instances : Math.max(1, instances.length));
  return el('ul', { class: 'legend' }, instances.map((instance) => el('li', {}, el('span', { class: 'mono' }, instance.id), `, ${instance.age < 1 ? 'now' : `${span(instance.age)} old`}`)));
}
