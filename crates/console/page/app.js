// The frame of the console: sign-in, the bar at the top, and which page is shown.

import { readiness, whenSessionEnds } from './api.js';
import { badge, el, notice, put } from './dom.js';
import { sentence, zone } from './format.js';
import { statusBadge } from './health.js';
import { keptDraft } from './kept.js';
import { showChanges } from './pages/changes.js';
import { showClient } from './pages/client.js';
import { showOverrides } from './pages/overrides.js';
import { showOverview } from './pages/overview.js';
import { showRuleAdd } from './pages/rule-add.js';
import { showRuleEdit } from './pages/rule-edit.js';
import { showRule } from './pages/rule.js';
import { showRules } from './pages/rules.js';
import { showSignIn, signInFromAddress } from './pages/sign-in.js';
import { link, parse } from './router.js';
import { nameOf } from './rules.js';
import { clientSearch } from './search.js';
import { current, forget, isAlive, mayWrite, resume, signOut, whyReadOnly } from './session.js';

const main = document.getElementById('main');
const bar = document.getElementById('bar');
const TABS = [['Overview', '#/', ''], ['Rules', '#/rules', 'rules'], ['Client', '#/client', 'client'], ['Overrides', '#/overrides', 'overrides'], ['Changes', '#/changes', 'changes']];
const EVERY = 10_000;

let cleanUp = null;
let turn = 0;
let healthTimer = 0;

/** The page of a route: its title, and what shows it. */
function pageOf({ parts, parameters }) {
  const [first, second, third] = parts;
  if (first === undefined) return ['Overview', (into) => showOverview(into)];
  if (first === 'rules' && second && third === 'edit') return [`Edit ${nameOf(second)}`, (into) => showRuleEdit(into, second)];
  if (first === 'rules' && second) return [nameOf(second), (into) => showRule(into, second)];
  if (first === 'rules') return ['Rules', (into) => showRules(into, parameters)];
  if (first === 'add-rule') return ['Add a rule', (into) => showRuleAdd(into)];
  if (first === 'overrides') return ['Overrides', (into) => showOverrides(into)];
  if (first === 'client') return ['Client', (into) => showClient(into, parameters)];
  if (first === 'changes') return ['Changes', (into) => showChanges(into, second)];
  return ['Not found', (into) => put(into, el('h1', { tabindex: -1 }, 'There is no such page'), el('a', { href: '#/' }, 'Overview'))];
}

async function show({ keepsFocus = false } = {}) {
  const route = parse(location.hash);
  const [title, page] = pageOf(route);
  cleanUp?.();
  cleanUp = null;
  turn += 1;
  const mine = turn;
  // A page that is late writes into a part that is no longer shown.
  const into = el('div', {}, el('p', { class: 'empty' }, 'Loading…'));
  put(main, into);
  drawBar(route.parts[0] ?? '');
  document.title = `${title} · Tidegate`;
  let done = null;
  try {
    done = await page(into);
  } catch (problem) {
    put(into, el('div', { class: 'page-head' }, el('h1', { tabindex: -1 }, title)), notice('bad', 'This page cannot be shown', problem.message));
  }
  if (mine !== turn) {
    done?.();
    return;
  }
  cleanUp = done;
  if (!keepsFocus) {
    scrollTo(0, 0);
    into.querySelector('h1')?.focus({ preventScroll: true });
  }
}

function drawBar(first) {
  const session = current();
  const place = first === 'add-rule' ? 'rules' : first;
  const health = bar.querySelector('#health') ?? el('span', { id: 'health' });
  const scopes = mayWrite() ? badge('wide-only', 'can edit') : badge('careful', 'read-only');
  scopes.title = whyReadOnly() ?? `Signed in as ${session.name}`;
  const focused = bar.contains(document.activeElement) ? document.activeElement.id : '';
  const zones = [['zone-local', 'Local', false], ['zone', 'UTC', true]].map(([id, name, isUtc]) => el('button',
    { type: 'button', id, 'aria-pressed': String(zone.isUtc() === isUtc), title: isUtc ? 'Show times in UTC' : `Show times in ${zone.local()}`, onclick: () => chooseZone(isUtc) }, name));
  put(bar, el('div', { class: 'bar' },
    el('a', { class: 'brand', href: '#/' }, el('img', { src: 'icon.svg', alt: '' }), 'Tidegate'),
    el('nav', { class: 'tabs', 'aria-label': 'Pages' }, TABS.map(([name, href, tab]) => el('a', { href, 'aria-current': tab === place ? 'page' : undefined }, name))),
    clientSearch(),
    el('div', { class: 'right' }, health, el('div', { class: 'choices', role: 'group', 'aria-label': 'Times' }, zones),
      el('span', { class: 'widest-only small quiet' }, session.name), scopes,
      el('button', { type: 'button', onclick: leave }, 'Sign out'))));
  if (focused) document.getElementById(focused)?.focus();
}

function chooseZone(isUtc) {
  zone.choose(isUtc);
  const { parts } = parse(location.hash);
  // A text that is being edited is not thrown away for the sake of its times.
  if (parts[2] === 'edit' || parts[0] === 'add-rule') drawBar(parts[0]);
  else show({ keepsFocus: true });
}

async function readHealth() {
  const status = await readiness().then((body) => body.status, () => 'unreachable');
  const health = bar.querySelector('#health');
  if (health) put(health, statusBadge(status));
  // A server that was restarted is ready, and knows this session no more.
  if (current()) await isAlive();
}

function begin() {
  clearInterval(healthTimer);
  healthTimer = setInterval(readHealth, EVERY);
  show();
  readHealth();
}

/** After a sign-in, a text that was being edited comes first. */
function beginAnew() {
  const draft = keptDraft.any();
  const place = draft && (draft.isNew ? link(['add-rule']) : link(['rules', draft.id, 'edit']));
  if (place) history.replaceState(null, '', place);
  begin();
}

function end(why) {
  cleanUp?.();
  cleanUp = null;
  turn += 1;
  clearInterval(healthTimer);
  put(bar);
  document.querySelectorAll('dialog').forEach((dialog) => dialog.close());
  document.title = 'Sign in · Tidegate';
  showSignIn(main, beginAnew, why);
}

async function leave() {
  await signOut();
  history.replaceState(null, '', '#/');
  end('You are signed out.');
}

async function start() {
  const { isIn, why } = await signInFromAddress();
  if (isIn) {
    beginAnew();
    return;
  }
  try {
    if (!current() && !(await resume())) {
      end(why);
      return;
    }
  } catch (problem) {
    end(whyEnded(problem.message));
    return;
  }
  begin();
  if (why) main.prepend(notice('careful', 'Still signed in as before', why));
}

function whyEnded(why) {
  const kept = keptDraft.any() ? ' The text that you were editing is kept.' : '';
  return `${sentence(why ?? 'the server does not accept the session any more')}${kept}`;
}

document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  (main.querySelector('h1') ?? main).focus();
});
whenSessionEnds((why) => {
  if (!current()) return;
  forget();
  end(whyEnded(why));
});
addEventListener('hashchange', () => {
  if (location.hash.startsWith('#code=')) start();
  else if (current()) show();
});
start();
