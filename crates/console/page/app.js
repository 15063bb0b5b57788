// The frame of the console: sign-in, the bar at the top, and which page is shown.

import { readiness, whenSessionEnds } from './api.js';
import { badge, el, notice, put } from './dom.js';
import { zone } from './format.js';
import { statusBadge } from './health.js';
import { showChanges } from './pages/changes.js';
import { showClient } from './pages/client.js';
import { showOverview } from './pages/overview.js';
import { showRuleEdit } from './pages/rule-edit.js';
import { showRule } from './pages/rule.js';
import { showSignIn, signInFromAddress } from './pages/sign-in.js';
import { parse } from './router.js';
import { current, forget, mayWrite, signOut, whyReadOnly } from './session.js';

const main = document.getElementById('main');
const bar = document.getElementById('bar');
const TABS = [['Overview', '#/', ''], ['Client', '#/client', 'client'], ['Changes', '#/changes', 'changes']];
const EVERY = 10_000;

let cleanUp = null;
let turn = 0;
let healthTimer = 0;

/** The page of a route: its title, and what shows it. */
function pageOf({ parts, parameters }) {
  const [first, second, third] = parts;
  if (first === undefined) return ['Overview', (into) => showOverview(into)];
  if (first === 'rules' && second && third === 'edit') return [`Edit ${second}`, (into) => showRuleEdit(into, second)];
  if (first === 'rules' && second) return [second, (into) => showRule(into, second)];
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
  const place = first === 'rules' ? '' : first;
  const health = bar.querySelector('#health') ?? el('span', { id: 'health' });
  const scopes = mayWrite() ? badge('wide-only', 'may change') : badge('careful', 'read-only');
  if (!mayWrite()) scopes.title = whyReadOnly();
  const zoneButton = el('button', { type: 'button', id: 'zone', 'aria-pressed': String(zone.isUtc()), title: `Times are shown in ${zone.name()}`, onclick: toggleZone }, 'UTC');
  const hadFocus = document.activeElement?.id === 'zone';
  put(bar, el('div', { class: 'bar' },
    el('a', { class: 'brand', href: '#/' }, el('img', { src: 'icon.svg', alt: '' }), 'Tidegate'),
    el('nav', { class: 'tabs', 'aria-label': 'Pages' }, TABS.map(([name, href, tab]) => el('a', { href, 'aria-current': tab === place ? 'page' : undefined }, name))),
    el('div', { class: 'right' }, health, zoneButton, el('span', { class: 'wide-only small quiet' }, session.name), scopes,
      el('button', { type: 'button', onclick: leave }, 'Sign out'))));
  if (hadFocus) zoneButton.focus();
}

function toggleZone() {
  zone.toggle();
  const { parts } = parse(location.hash);
  // An edit is not thrown away for the sake of its times.
  if (parts[2] === 'edit') drawBar(parts[0]);
  else show({ keepsFocus: true });
}

async function readHealth() {
  const status = await readiness().then((body) => body.status, () => 'unreachable');
  const health = bar.querySelector('#health');
  if (health) put(health, statusBadge(status));
}

function begin() {
  clearInterval(healthTimer);
  healthTimer = setInterval(readHealth, EVERY);
  show();
  readHealth();
}

function end(why) {
  cleanUp?.();
  cleanUp = null;
  turn += 1;
  clearInterval(healthTimer);
  forget();
  put(bar);
  document.querySelectorAll('dialog').forEach((dialog) => dialog.close());
  document.title = 'Sign in · Tidegate';
  showSignIn(main, begin, why);
}

async function leave() {
  await signOut();
  location.hash = '#/';
  end('You are signed out.');
}

async function start() {
  const { isIn, why } = await signInFromAddress();
  if (isIn) begin();
  else if (current()) {
    await show();
    main.prepend(notice('careful', 'Still signed in as before', why));
  } else end(why);
}

document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  (main.querySelector('h1') ?? main).focus();
});
whenSessionEnds((why) => { if (current()) end(`Your session has ended: ${why ?? 'the server does not accept the token any more'}.`); });
addEventListener('hashchange', () => {
  if (location.hash.startsWith('#code=')) start();
  else if (current()) show();
});
start();
