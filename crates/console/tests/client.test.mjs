// The page of a client under load: the right answer, the evidence, the undo; also for clients with a tier or a secret.

import assert from 'node:assert/strict';
import { failedWith, openBrowser, openPage, runTests, until } from './browser.mjs';
import { SECRET, startLoad, startServer } from './server.mjs';

const RULES = [
  { id: 'per-user', match: { path: ['/v1/**'] }, per: ['user_id'], missing: 'deny', limit: '60/hour burst 20', tiers: { pro: '120/minute burst 10', free: '30/hour' } },
  { id: 'partner', match: { path: ['/partner/**'] }, per: ['api_key'], missing: 'deny', limit: '30/hour' },
];
const server = await startServer({ rules: RULES });
const pro = { path: '/v1/reports', method: 'GET', ip: '203.0.113.20', user_id: 'pro-carl', tier: 'pro' };
const load = startLoad(server, new Array(10).fill(pro));
const browser = await openBrowser();

const check = (attributes) => server.call('POST', '/v1/check', { attributes });
const partner = { path: '/partner/stock', api_key: SECRET };
const text = (page, selector) => page.locator(selector).first().innerText();

/** Seconds of a wait such as `350 ms` or `1 min 20 s`. */
function seconds(wait) {
  const sizes = { ms: 0.001, s: 1, min: 60, h: 3_600 };
  return [...wait.matchAll(/([\d.]+) (ms|s|min|h)\b/g)].reduce((total, [, number, unit]) => total + Number(number) * sizes[unit], 0);
}

const failures = await runTests('client', {
  async 'a client with a tier is found in the overview, and explained with its tier and its true wait'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.locator('section[aria-label="Most denied clients"] a:has-text("pro-carl")').click();
    await page.waitForSelector('.verdict');
    const rule = await text(page, '.explained');
    assert.match(rule, /tier pro/);
    assert.match(rule, /grants 120\/minute burst 10 from its tier/);
    assert.ok(!/60 per 1 h/.test(rule), 'not the limit of clients without a tier');
    const wait = /allowed again in ([^\n,]+)/.exec(rule);
    if (wait) assert.ok(seconds(wait[1]) <= 0.5, `one every 500 ms, not ${wait[1]}`);
    const last = await text(page, 'section[aria-label="Last decision"]');
    assert.match(last, /GET \/v1\/reports/);
    assert.match(last, /203\.0\.113\.20/);
    assert.match(last, /Tier\s+pro/);
    assert.match(last, /120\/minute burst 10 from its tier/);
    const filled = await page.locator('.attributes input').evaluateAll((inputs) => inputs.map((input) => input.value));
    for (const value of ['tier', 'pro', 'path', '/v1/reports']) assert.ok(filled.includes(value), filled.join());
    assert.ok(!filled.includes('/v1/any'), 'nothing is invented');
    await finish();
  },

  async 'the demand is compared with the limit, and the last ten denied requests are shown'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/client?rule=per-user&a.user_id=pro-carl');
    await until('the demand is said', async () => /Sends about [\d,]+ a minute, limit 120 a minute: about [\d,]+ times too much/.test(await page.locator('main').innerText()));
    assert.match(await text(page, '.notice.careful'), /Denied [\d,.]+K? times in the last minute by per-user/);
    const rows = page.locator('section[aria-label="Last denied requests"] tbody tr');
    await until('ten samples', async () => (await rows.count()) === 10);
    const cells = await rows.first().locator('td').allInnerTexts();
    assert.match(cells[0], /^\d\d:\d\d:\d\d$/);
    assert.deepEqual(cells.slice(1), ['GET', '/v1/reports', '203.0.113.20', 'http', 'over the limit']);
    await page.waitForSelector("section[aria-label=\"Demand\"] canvas");
    await page.locator('.verdict button:text-is("Override…")').click();
    assert.equal(await page.inputValue('#o-limit'), '240/minute burst 20', 'twice what it has by its tier');
    await finish();
  },

  async 'an unknown tier is said to be unknown, and can be tried'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/client?rule=per-user&a.user_id=scraper-7');
    await page.waitForSelector('.notice:has-text("The tier of this client is not known")');
    await page.locator('button:text-is("pro: 120/minute burst 10")').click();
    await page.waitForSelector('.explained .badge:text-is("tier pro")');
    assert.match(await text(page, '.explained'), /grants 120\/minute burst 10 from its tier/);
    await finish();
  },

  async 'a client that no server has seen is explained by an example that says so'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/client?rule=per-user&a.user_id=never-seen');
    await page.waitForSelector('.verdict.good');
    assert.match(await text(page, 'section[aria-label="Request"]'), /This is an example, so that per-user applies: path\./);
    await finish(failedWith(422));
  },

  async 'a secret client is found, explained, reset and overridden by its digest alone'() {
    const { page, seen, signIn, show, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.fill('#find', 'sk_l');
    await page.waitForSelector('.found a');
    await page.keyboard.press('ArrowDown');
    const shown = await page.evaluate(() => document.activeElement.innerText);
    assert.match(shown, /^sk_l…[0-9a-f]{12}$/);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.verdict.bad');
    assert.match(await text(page, '.verdict'), /by partner/);
    assert.match(await text(page, '.explained'), new RegExp(`Counts ${shown} and grants 30/hour`));
    assert.match(await text(page, 'section[aria-label="Last decision"]'), /\/partner\/stock/);
    await until('its samples', async () => (await page.locator('section[aria-label="Last denied requests"] tbody tr').count()) === 10);

    await load.pause();
    assert.equal((await check(partner)).status, 429);
    await page.locator('.verdict button:text-is("Reset counters…")').click();
    await page.locator('dialog button:text-is("Reset")').click();
    await page.waitForSelector('.verdict.careful:has-text("One such request is allowed now; what this client sends is not.")');
    assert.equal((await check(partner)).status, 200, 'it has its whole limit again');
    load.resume();
    await until('it is denied again', async () => (await check(partner)).status === 429);

    await page.locator('.verdict button:text-is("Override…")').click();
    assert.equal(await page.inputValue('#o-key'), shown);
    await page.fill('#o-limit', '60000/minute');
    await page.locator('dialog button[type=submit]').click();
    await page.waitForSelector('.explained:has-text("from a temporary override")');
    await until('it is allowed', async () => (await check(partner)).status === 200);
    await show('#/overrides');
    await page.waitForSelector(`tbody th:has-text("${shown.slice(-12)}")`);
    for (const route of ['#/', '#/rules/partner', '#/client', '#/overrides', '#/changes']) {
      await show(route);
      await page.waitForSelector('.panel');
      await page.waitForTimeout(300);
      assert.ok(!(await page.content()).includes(SECRET), route);
    }
    assert.ok(!page.url().includes(SECRET) && !seen.bodies.some((body) => body.includes(SECRET)), 'in an answer of the server');
    assert.ok(!server.log().includes(SECRET), 'in the log');
    await finish();
  },

  async 'the mark of an override is in the chart and in its table'() {
    await server.call('POST', '/v1/rules/per-user/overrides', { key: 'marked-9', limit: '5000/minute', for: '1h', reason: 'a launch' });
    const { page, signIn, show, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.waitForSelector('.badge:has-text("live")');
    for (const route of ['#/', '#/rules/per-user']) {
      await show(route);
      const figure = page.locator('figure').first();
      await figure.locator('.legend li:visible:has-text("override")').waitFor();
      assert.match(await figure.locator('.marks').innerText(), /marked-9/);
      await figure.locator('summary').click();
      await figure.locator('td:has-text("marked-9")').first().waitFor();
    }
    await show('#/rules/partner');
    await page.waitForSelector('.badge:has-text("live")');
    await page.locator('figure summary').click();
    await page.waitForSelector('figure tbody tr');
    assert.equal(await page.locator('figure td:has-text("marked-9")').count(), 0, 'it is no mark of another rule');
    await finish();
  },

  async 'a restart leaves the history, and a time without a server is a gap'() {
    const before = await server.call('GET', '/v1/activity?window=1h');
    const total = (answer) => answer.body.total.denied.reduce((all, denied) => all + denied, 0);
    assert.ok(total(before) > 0);
    await load.stop();
    await server.restart();
    const after = await server.call('GET', '/v1/activity?window=1h');
    assert.ok(total(after) >= total(before), `${total(after)} of ${total(before)}`);
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.locator('button:text-is("1 h")').click();
    await page.waitForSelector('.badge:has-text("every 15 s")');
    const figure = page.locator('figure').first();
    await figure.locator('summary').click();
    const cells = () => figure.locator('tbody td:nth-child(2)').allInnerTexts();
    await until('the table is that of the hour', async () => (await cells()).includes('no data'));
    const numbers = (await cells()).filter((cell) => cell !== 'no data').map(Number);
    assert.ok(numbers.some((number) => number > 0), 'what was denied before the restart is there');
    assert.equal((await cells()).at(-1), 'no data', 'the server did not run an hour ago');
    await finish();
  },
});

await browser.close();
await load.stop();
await server.stop();
process.exitCode = failures > 0 ? 1 : 0;
