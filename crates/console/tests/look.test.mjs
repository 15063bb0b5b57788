// How the pages look: contrast and names by axe-core, in light and dark, and nothing wider than the screen.

import assert from 'node:assert/strict';
import { openBrowser, openPage, readAxe, runTests } from './browser.mjs';
import { startLoad, startServer } from './server.mjs';

const server = await startServer();
const load = startLoad(server);
await server.call('PUT', '/v1/rules/login', { match: { path: ['/login'] }, per: ['ip'], missing: 'deny', limit: '12/minute' });
await server.call('POST', '/v1/rules/per-user/overrides', { key: 'vip-1', limit: 'unlimited', for: '2h', reason: 'a launch' });
const browser = await openBrowser();
const axe = await readAxe();

const PAGES = [
  ['#/', '.badge:has-text("live")'],
  ['#/rules/per-user', 'pre.code'],
  ['#/rules/per-user/edit', '.lines'],
  ['#/client?rule=per-user&a.user_id=scraper-7', '.verdict'],
  ['#/client', '#client-search'],
  ['#/rules', 'tbody a'],
  ['#/add-rule', '.lines'],
  ['#/overrides', 'tbody a'],
  ['#/changes', '.timeline'],
];

/** Problems that axe-core finds, a line each. */
async function problems(page) {
  await page.evaluate(axe);
  // It is looked at as it is after all transitions.
  await page.waitForFunction(() => document.getAnimations().every(({ playState }) => playState === 'finished'));
  const { violations } = await page.evaluate(() => window.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
  return violations.flatMap(({ id, help, nodes }) => nodes.map((node) => `${id}: ${help}: ${node.target} ${node.any?.[0]?.message ?? ''}`));
}

const tests = {};
for (const [width, scheme] of [[1440, 'light'], [1440, 'dark'], [360, 'light'], [360, 'dark']]) {
  tests[`every page at ${width} px in ${scheme}`] = async () => {
    // axe-core is put into the page, which its policy forbids; the other tests run with the policy.
    const { page, signIn, show, finish } = await openPage(browser, server, { width, scheme, bypassCSP: true });
    await page.goto(`${server.url}/console/`);
    await page.waitForSelector('#token');
    const found = (await problems(page)).map((problem) => `sign-in ${problem}`);
    await signIn(server.token);
    for (const [route, ready] of PAGES) {
      await show(route);
      await page.locator(ready).first().waitFor();
      await page.waitForTimeout(250);
      found.push(...(await problems(page)).map((problem) => `${route} ${problem}`));
      const tooWide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(tooWide, 0, `${route} is ${tooWide} px too wide`);
    }
    await show('#/');
    const top = async (label) => (await page.locator(`section[aria-label="${label}"]`).boundingBox()).y;
    await page.locator('section[aria-label="Most denied clients"] a').first().waitFor();
    if (width < 720) assert.ok(await top('Most denied clients') < await top('Requests per second'), 'the clients come first on a phone');
    await page.fill('#find', 'u1');
    await page.waitForSelector('.found a');
    found.push(...(await problems(page)).map((problem) => `search ${problem}`));
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0, 'the clients that are found fit');
    await show('#/client?rule=per-user&a.user_id=scraper-7');
    await page.locator('.verdict button:has-text("Override")').click();
    await page.waitForSelector('dialog[open]');
    found.push(...(await problems(page)).map((problem) => `dialog ${problem}`));
    assert.deepEqual(found, []);
    await finish();
  };
}

const failures = await runTests('look', tests);
await browser.close();
await load.stop();
await server.stop();
process.exitCode = failures > 0 ? 1 : 0;
