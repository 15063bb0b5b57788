// A screenshot of each page, from a real run.

import { join } from 'node:path';
import { openBrowser, openPage } from './browser.mjs';
import { startServer } from './server.mjs';

const folder = process.argv[2];
// How long the load runs before the first picture, in milliseconds.
const WARM_UP = 280_000;
// Smaller than on a screen, so that each has less than 200 KB.
const SCALE = 0.85;

const server = await startServer({ rules: [
  { id: 'per-user', description: 'What a user of the API may send.', match: { path: ['/v1/**'] }, per: ['user_id'], missing: 'share', limit: '600/hour burst 30', tiers: { free: '300/hour burst 30', pro: '600/minute' } },
  { id: 'login', match: { path: ['/login'], method: ['POST'] }, per: ['ip'], missing: 'deny', limit: '10/minute' },
  { id: 'partner', match: { path: ['/partner/**'] }, per: ['api_key'], missing: 'deny', limit: '10/second' },
  { id: 'search-trial', description: 'To be enforced next week.', match: { path: ['/search'] }, per: ['ip'], missing: 'deny', limit: '5/second', mode: 'shadow' },
] });

const pick = (list) => list[Math.floor(Math.random() * list.length)];
let isStopped = false;
const started = Date.now();
const load = (async () => {
  while (!isStopped) {
    const seconds = (Date.now() - started) / 1000;
    const checks = [];
    const add = (count, attributes) => { for (let each = 0; each < count; each += 1) checks.push({ attributes: attributes() }); };
    const wave = 1 + 0.4 * Math.sin(seconds / 9);
    add(Math.round(14 * wave), () => ({ method: 'GET', path: '/v1/orders', user_id: `user-${Math.floor(Math.random() * 2_000)}`, tier: pick(['free', 'free', 'pro']) }));
    if (seconds > 150) add(Math.round(5 * wave), () => ({ method: 'GET', path: `/v1/export/${Math.floor(Math.random() * 900)}`, ip: pick(['203.0.113.20', '203.0.113.21']), user_id: 'scraper-7', tier: 'pro' }));
    if (seconds > 170) add(2, () => ({ method: 'POST', path: '/v1/orders', user_id: pick(['batch-import', 'user-17']), tier: 'free' }));
    add(3, () => ({ path: '/search', ip: pick(['203.0.113.8', '203.0.113.9', '198.51.100.4']) }));
    add(2, () => ({ path: '/partner/stock', api_key: pick(['sk_live_51Hc8T9uWxYzAbCdEfGh', 'sk_live_90QaPzMnBvCxLkJhGfDs']) }));
    if (Math.random() < 0.4) add(1, () => ({ path: '/login', method: 'POST', ip: pick(['203.0.113.7', '198.51.100.23', '198.51.100.24']) }));
    await server.call('POST', '/v1/check/batch', { checks }).catch(() => {});
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
})();

const wait = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });
const override = (rule, key, limit, lasts, reason) => server.call('POST', `/v1/rules/${rule}/overrides`, { key, limit, for: lasts, reason });
await wait(WARM_UP * 0.2);
await override('per-user', 'user-1406', '1200/hour', '7d', 'trial of the new plan');
await wait(WARM_UP * 0.25);
await override('login', '198.51.100.77', 'blocked', '24h', 'guesses passwords');
await wait(WARM_UP * 0.25);
const rule = (await server.call('GET', '/v1/rules/login')).body;
await server.call('PUT', '/v1/rules/login', { ...rule, limit: '20/minute' });
await wait(WARM_UP * 0.15);
await override('per-user', 'batch-import', '3000/minute', '4h', 'month end, asked by billing');
await wait(WARM_UP * 0.15);

const browser = await openBrowser();
const pages = [
  ['overview', '#/', 'light', 'a:has-text("scraper-7")'],
  ['rule', '#/rules/per-user', 'light', 'a:has-text("scraper-7")'],
  ['edit', '#/rules/per-user/edit', 'light', '.lines'],
  ['client', '#/client?rule=per-user&a.user_id=scraper-7', 'light', '.verdict'],
  ['overrides', '#/overrides', 'light', 'tbody a'],
  ['changes', '#/changes', 'light', '.timeline'],
  ['overview-dark', '#/', 'dark', 'a:has-text("scraper-7")'],
];
for (const [name, route, scheme, ready] of pages) {
  const { page, signIn, finish } = await openPage(browser, server, { width: 1240, height: 760, scale: SCALE, scheme });
  await signIn(server.token, route);
  await page.locator(ready).first().waitFor();
  if (name === 'edit') {
    const text = await page.inputValue('#rule-text');
    await page.fill('#rule-text', text.replace('600/hour', '600/hou').replace('missing: share', 'missing: shared'));
    await page.locator('.problems li').first().waitFor();
  }
  if (name === 'changes') await page.locator('summary').first().click();
  // The chart of a client begins when its page is opened.
  await page.waitForTimeout(name === 'client' ? 45_000 : 2_500);
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: name !== 'edit' });
  await finish();
}
await browser.close();
isStopped = true;
await load;
await server.stop();
