// Starts real servers, and sends them requests as clients would.

import { spawn, execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

const PROGRAM = process.env.TIDEGATE ?? 'target/debug/tidegate';
// Of the same build.
const MANAGEMENT = join(dirname(PROGRAM), 'tidegate-testkit-xds');
const PATIENCE = 60_000;

/** A key that must never be seen. It is long enough that its first four characters may be. */
export const SECRET = 'sk_live_51Hc8T9uWxYzAbCdEfGh';
export const HOSTILE = '<img src=x onerror=alert(document.domain)>';
export const ESCAPE = '\u001b[2J\u202egone';

export const RULES = [
  { id: 'per-user', description: 'What a user of the API may send.', match: { path: ['/v1/**'] }, per: ['user_id'], missing: 'deny', limit: '60/hour burst 20', tiers: { pro: '6000/minute' } },
  { id: 'login', match: { path: ['/login'], method: ['POST'] }, per: ['ip'], missing: 'deny', limit: '10/minute' },
  { id: 'partner', match: { path: ['/partner/**'] }, per: ['api_key'], missing: 'deny', limit: '10/hour' },
  { id: 'search-trial', match: { path: ['/search'] }, per: ['ip'], missing: 'deny', limit: '5/second', mode: 'shadow' },
];

/** Starts the program in a folder, and resolves to its address when it listens. */
async function start(folder, flags, environment) {
  const child = spawn(PROGRAM, ['serve', '--grpc', 'off', '--data-dir', 'data', ...flags], {
    cwd: folder, env: { PATH: process.env.PATH, ...environment }, stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exited = new Promise((resolve) => { child.once('exit', resolve); });
  const running = {
    log: '',
    async stop() {
      child.kill('SIGTERM');
      await exited;
    },
  };
  child.stderr.on('data', (data) => { running.log += data; });
  running.address = await new Promise((resolve, reject) => {
    let out = '';
    child.stdout.on('data', (data) => {
      out += data;
      const found = /^listening http=(.*)$/m.exec(out);
      if (found) resolve(found[1]);
    });
    exited.then((code) => reject(new Error(`the server ended with ${code}: ${running.log}`)));
    setTimeout(() => reject(new Error(`the server did not start: ${running.log}`)), PATIENCE).unref();
  });
  return running;
}

/** A server in a folder of its own, with these rules. `files` are written first. */
export async function startServer({ flags = [], files = {}, environment = {}, rules = RULES, token } = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'tidegate-console-'));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
  let running = await start(folder, ['--http', '127.0.0.1:0', ...flags], environment);
  const { address } = running;
  let earlier = '';
  const server = {
    url: `http://${address}`,
    folder,
    log: () => earlier + running.log,
    token: token ?? (await readFile(join(folder, 'data/admin-token'), 'utf8')).trim(),
    /** Makes a call of the API. */
    async call(method, path, body, headers = {}) {
      const reply = await fetch(`http://${address}${path}`, {
        method,
        headers: { authorization: `Bearer ${server.token}`, 'content-type': 'application/json', ...headers },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
      const text = await reply.text();
      return { status: reply.status, etag: reply.headers.get('etag'), body: text ? JSON.parse(text) : null };
    },
    /** Runs a command of the program, and returns its output. */
    async run(...words) {
      const environment = { PATH: process.env.PATH };
      const { stdout } = await promisify(execFile)(PROGRAM, [...words, '--server', server.url], { cwd: folder, env: environment });
      return stdout;
    },
    /** Stops the server, and starts it again at the same address with the same data. */
    async restart() {
      await running.stop();
      earlier += running.log;
      running = await start(folder, ['--http', address, ...flags], environment);
    },
    async stop() {
      await running.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
  if (rules) {
    const { status, body } = await server.call('PUT', '/v1/rules', { rules });
    if (status !== 200) throw new Error(JSON.stringify(body));
  }
  return server;
}

/** Requests of many clients, some of whom send too many, until `stop` is called. `more` are sent with each batch. */
export function startLoad(server, more = []) {
  let isStopped = false;
  let paused = null;
  let batch = Promise.resolve();
  const check = (attributes) => ({ attributes });
  const running = (async () => {
    for (let turn = 0; !isStopped; turn += 1) {
      await paused?.promise;
      const checks = more.map(check);
      for (let each = 0; each < 8; each += 1) checks.push(check({ path: '/v1/orders', user_id: 'scraper-7' }));
      for (let each = 0; each < 4; each += 1) checks.push(check({ path: '/v1/orders', user_id: HOSTILE }), check({ path: '/v1/orders', user_id: ESCAPE }));
      for (let each = 0; each < 12; each += 1) checks.push(check({ path: '/v1/orders', user_id: `u${(turn * 12 + each) % 200}` }));
      for (let each = 0; each < 3; each += 1) checks.push(check({ path: '/partner/stock', api_key: SECRET }));
      checks.push(check({ path: '/login', method: 'POST', ip: '203.0.113.7' }), check({ path: '/search', ip: '203.0.113.8' }), check({ path: '/search', ip: '203.0.113.8' }));
      batch = server.call('POST', '/v1/check/batch', { checks }).catch(() => {});
      await batch;
      await new Promise((resolve) => { setTimeout(resolve, 100); });
    }
  })();
  return {
    /** Sends nothing more until `resume`. */
    async pause() {
      let resolve;
      const promise = new Promise((done) => { resolve = done; });
      paused = { promise, resolve };
      await batch;
    },
    resume() { paused?.resolve(); paused = null; },
    async stop() {
      isStopped = true;
      paused?.resolve();
      await running;
    },
  };
}

/** The same limit for each route and each user of it, as Envoy Gateway has them. */
export function routesOf(domain, routes, requests = 3) {
  const route = (number) => `httproute/infra/web-${number}/rule/0/match/0/*`;
  const numbers = Array.from({ length: routes }, (_, index) => index);
  const rateLimit = { unit: 'hour', requests_per_unit: requests };
  return { domain, descriptors: numbers.map((number) => ({ key: route(number), value: route(number), descriptors: [{ key: 'rule-0-match-0', rate_limit: rateLimit }] })) };
}

/** The attributes of a request of a user to the first of these routes. */
export function requestOf(domain, user) {
  const route = 'httproute/infra/web-0/rule/0/match/0/*';
  return { domain, [route]: route, 'rule-0-match-0': user };
}

/** A management server, at a free address or at the one of an earlier server. */
export async function startManagement(address = '127.0.0.1:0') {
  const child = spawn(MANAGEMENT, [address], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = new Promise((resolve) => { child.once('exit', resolve); });
  const lines = createInterface({ input: child.stdout });
  const [line] = await Promise.race([once(lines, 'line'), exited.then((code) => { throw new Error(`the management server ended with ${code}`); })]);
  return {
    address: line.replace('listening ', ''),
    /** Sends domains as a version. */
    send(version, domains) { child.stdin.write(`${JSON.stringify({ version, domains })}\n`); },
    async stop() {
      child.stdin.end();
      await exited;
    },
  };
}
