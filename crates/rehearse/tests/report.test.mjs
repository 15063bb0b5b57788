// The report of `tidegate simulate` in Chromium: charts, narrow screens, dark, print, without script; and no output has a secret.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openBrowser, openPage, readAxe, runTests } from '../../console/tests/browser.mjs';

const PROGRAM = process.env.TIDEGATE ?? 'target/debug/tidegate';
const run = promisify(execFile);

/** Texts that no output may have: keys of clients, one that a rule names, a token in a query, the token of the caller. */
const SECRETS = ['sk_live_51Hc8T9uWxYz', 'key-of-the-partner', 'hidden-in-the-query', 'token-of-the-caller'];
const HOSTILE = '<img src=x onerror=alert(1)></script><script>alert(2)</script>';

const RULES = `rules:
  - {id: per-ip, match: {path: /v1/**}, per: [ip], limit: 20/minute, candidate: 10/minute, rollout: 50%}
  - id: keys
    per: [api_key]
    limit: 5/minute
    overrides: {${SECRETS[1]}: 6/minute}
    candidate: {overrides: {${SECRETS[1]}: 7/minute}}
  - {id: users, description: 'A name that is long enough to be wider than a telephone, if it were not broken anywhere', per: [user_id], limit: 9/minute, mode: shadow}
  - {id: busy, per: [], limit: 2, algorithm: concurrency}
  - {id: a-rule-with-an-id-that-is-as-long-as-ids-of-rules-may-be-xxxxx, per: [ip, path], limit: 3/second}
`;

function log() {
  const lines = ['{"time": 1794792000, "secret": "' + SECRETS[0] + '"', `sk ${SECRETS[0]} is no request`];
  for (let number = 0; number < 600; number += 1) {
    const client = number % 7;
    const request = {
      time: 1794792000 + Math.floor(number / 4), ip: `2001:db8:aaaa:bbbb:cccc:dddd:eeee:${client}`, method: 'GET',
      path: `/v1/${'items/'.repeat(12)}${number % 5}?token=${SECRETS[2]}`, user_id: client ? `user-${client}` : HOSTILE,
      api_key: client < 3 ? SECRETS[client % 2] : `${SECRETS[0]}${client}`,
    };
    lines.push(JSON.stringify(request));
  }
  return `${lines.join('\n')}\n`;
}

/** Keys that are read from another field, a condition that compares one, and pages that requests came from. */
const FIELD_RULES = `rules:
  - {id: tokens, per: [token], limit: 2/minute}
  - {id: from, per: [referer], limit: 2/minute}
  - {id: partner, match: {when: 'attributes["api_key"] == "${SECRETS[1]}"'}, per: [ip], limit: 2/minute}
`;

function fieldLog() {
  const line = (number) => JSON.stringify({
    time: 1794792000 + number, ip: '192.0.2.1', token: SECRETS[number % 2], copy: SECRETS[number % 2], path: '/v1/a',
    referer: `https://www.example.com/from?token=${SECRETS[2]}`,
  });
  return `${Array.from({ length: 40 }, (_, number) => line(number)).join('\n')}\n`;
}

const folder = await mkdtemp(join(tmpdir(), 'tidegate-report-'));
await writeFile(join(folder, 'rules.yaml'), RULES);
await writeFile(join(folder, 'before.yaml'), 'rules: [{id: per-ip, per: [ip], limit: 15/minute}, {id: gone, per: [], limit: 1000/minute}]\n');
await writeFile(join(folder, 'access.log'), log());
await writeFile(join(folder, 'fields.yaml'), FIELD_RULES);
await writeFile(join(folder, 'fields.log'), fieldLog());
const fields = ['--rules', 'fields.yaml', '--map', 'api_key=token', 'fields.log'];
const input = ['--rules', 'rules.yaml', 'access.log'];
const env = { PATH: process.env.PATH, NO_COLOR: '1', TIDEGATE_KEY_SECRET: 'x'.repeat(32) };
const tidegate = (...words) => run(PROGRAM, words, { cwd: folder, env, maxBuffer: 1 << 26 });
const outputs = {
  json: await tidegate('simulate', ...input, '--json', '--html', 'report.html', '--against', 'before.yaml', '--write-record', 'record.jsonl',
    '--token', SECRETS[3], '-a', `note=${SECRETS[3]}`),
  terminal: await tidegate('simulate', ...input, '--against', 'before.yaml'),
  shown: await tidegate('simulate', ...input, '--show', '9'),
  suggested: await tidegate('rules', 'suggest', ...input),
  suggestedJson: await tidegate('rules', 'suggest', ...input, '--json'),
  candidates: await tidegate('rules', 'suggest', ...input, '--as', 'candidate'),
  fields: await tidegate('simulate', ...fields, '--json', '--html', 'fields.html', '--write-record', 'fields.jsonl'),
  fieldsTerminal: await tidegate('simulate', ...fields),
  fieldsShown: await tidegate('simulate', ...fields, '--show', '9'),
  anonymous: await tidegate('simulate', ...fields, '--anonymous', '--json', '--html', 'anonymous.html', '--write-record', 'anonymous.jsonl'),
};
const written = ['report.html', 'record.jsonl', 'fields.html', 'fields.jsonl', 'anonymous.html', 'anonymous.jsonl'];
for (const name of written) outputs[name] = { stdout: await readFile(join(folder, name), 'utf8') };

const browser = await openBrowser();
const axe = await readAxe();
const pages = { url: `file://${folder}` };
const address = `${pages.url}/report.html`;
const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

const tests = {
  async 'no output has a secret'() {
    for (const [name, { stdout, stderr = '' }] of Object.entries(outputs)) {
      assert.ok(stdout.length > 100, name);
      // Malformed lines are shown on the terminal, and nowhere else.
      const text = name === 'terminal' ? stdout.split('\n').filter((line) => !/^ {2}access\.log:\d+:/.test(line)).join('\n') : stdout;
      for (const secret of SECRETS) assert.ok(!text.includes(secret) && !stderr.includes(secret), `${name}: ${secret}`);
    }
    // Only its owner can read what is written.
    for (const name of written) assert.equal((await stat(join(folder, name))).mode & 0o777, 0o600, name);
    for (const name of written.slice(-2)) assert.ok(!outputs[name].stdout.includes('192.0.2.1'), name);
    await writeFile(join(folder, 'suggested.yaml'), outputs.suggested.stdout);
    await tidegate('rules', 'validate', 'suggested.yaml');
  },

  async 'a recording is simulated to the same decisions, with overrides by their hashes'() {
    const again = JSON.parse((await tidegate('simulate', '--rules', 'rules.yaml', '--json', 'record.jsonl')).stdout);
    const first = JSON.parse(outputs.json.stdout);
    assert.deepEqual(again.total, first.total);
    const counts = ({ rule, allowed, denied, clients }) => ({ rule, allowed, denied, clients });
    assert.deepEqual(again.rules.map(counts), first.rules.map(counts));
  },

  async 'without script everything is there'() {
    const context = await browser.newContext({ javaScriptEnabled: false, viewport: { width: 900, height: 800 } });
    const page = await context.newPage();
    await page.goto(address);
    assert.match(await page.locator('.result').innerText(), /of 600 requests would have been denied/);
    assert.ok(await page.locator('figure.chart svg').first().isVisible());
    await page.locator('figure.chart summary').first().click();
    assert.ok(await page.locator('figure.chart table').first().isVisible(), 'figures open without script');
    assert.equal(await page.locator('img').count(), 0, 'names are text');
    await context.close();
  },

  async 'on paper it is dark on white, also where screens are dark'() {
    const { page, finish } = await openPage(browser, pages, { scheme: 'dark' });
    await page.goto(address);
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
    const colors = await page.evaluate(() => {
      const style = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
      return [style('body', 'backgroundColor'), style('body', 'color'), style('svg text', 'fill'), style('pre', 'backgroundColor'), style('figcaption', 'color')];
    });
    const light = (color) => color.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765;
    const [page_, text, label, panel, caption] = colors.map(light);
    assert.ok(page_ === 1 && panel > 0.9, `${colors}`);
    assert.ok(text < 0.3 && label < 0.3 && caption < 0.5, `${colors}`);
    assert.ok((await page.pdf()).length > 10_000);
    await finish();
  },
};

for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [360, 'light'], [360, 'dark']]) {
  tests[`charts are drawn, and read, at ${width} px in ${scheme}`] = async () => {
    const { page, finish } = await openPage(browser, pages, { width, scheme });
    await page.goto(address);
    assert.equal(await overflow(page), 0, 'nothing is wider than the screen');
    const charts = await page.locator('figure svg').all();
    assert.ok(charts.length >= 8, `${charts.length} charts`);
    for (const chart of charts) {
      const { width: wide, height } = await chart.boundingBox();
      assert.ok(wide > 200 && height > 40, `${wide} × ${height}`);
      const drawn = await chart.evaluate((svg) => [...svg.querySelectorAll('rect')].filter((rect) => {
        const { width: w, height: h } = rect.getBoundingClientRect();
        return w > 0 && h > 0 && getComputedStyle(rect).fill !== 'rgb(0, 0, 0)';
      }).length);
      // Of a rule that denies nothing, with whatever limits, there is nothing to draw but the shares.
      const texts = await chart.locator('text').allTextContents();
      const isNone = texts.length > 0 && texts.every((text) => text.startsWith('×') || text === '0.00 %');
      assert.ok(drawn > 0 || isNone, await chart.getAttribute('aria-label'));
    }
    const label = await page.locator('figure.scale text').first().evaluate((text) => text.getBoundingClientRect().height);
    assert.ok(label >= 9, `labels are ${label} px high`);
    const figure = page.locator('figure.chart').first();
    await figure.locator('g rect').nth(3).hover();
    assert.match(await figure.locator('.readout').innerText(), /^2026-11-16T.*: \d+ allowed, \d+ denied$/);
    for (const summary of await page.locator('summary').all()) await summary.click();
    assert.equal(await overflow(page), 0, 'nor are the figures');
    await finish();
  };
  tests[`axe-core finds nothing at ${width} px in ${scheme}`] = async () => {
    const { page, finish } = await openPage(browser, pages, { width, scheme, bypassCSP: true });
    await page.goto(address);
    await page.evaluate(() => { for (const details of document.querySelectorAll('details')) details.open = true; });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
    const found = violations.flatMap(({ id, help, nodes }) => nodes.slice(0, 3).map((node) => `${id}: ${help}: ${node.target}`));
    assert.deepEqual(found, []);
    await finish();
  };
}

const failures = await runTests('report', tests);
await browser.close();
await rm(folder, { recursive: true });
process.exitCode = failures > 0 ? 1 : 0;
