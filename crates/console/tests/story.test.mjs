// From an alert to the undo, by mouse and by keyboard alone.

import assert from 'node:assert/strict';
import { failedWith, openBrowser, openPage, runTests, until } from './browser.mjs';
import { startLoad, startServer } from './server.mjs';

const server = await startServer();
const load = startLoad(server);
const browser = await openBrowser();

const check = (user) => server.call('POST', '/v1/check', { attributes: { path: '/v1/orders', user_id: user } });
const text = (page, selector) => page.locator(selector).first().innerText();

/** Everything that the browser keeps of the page. */
const stored = (page) => page.evaluate(() => ({ local: JSON.stringify(localStorage), session: JSON.stringify(sessionStorage), cookie: document.cookie }));

const overrides = async () => (await server.call('GET', '/v1/overrides')).body.overrides;

/** Presses Tab until the focus is on an element with this text. */
async function tabTo(page, wanted) {
  for (let times = 0; times < 80; times += 1) {
    await page.keyboard.press('Tab');
    const focused = await page.evaluate(() => {
      const element = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(element);
      return { text: (element.innerText || element.getAttribute('aria-label') || element.id || '').trim(), isVisible: outlineStyle !== 'none' && outlineWidth !== '0px' };
    });
    assert.ok(focused.isVisible || focused.text === '', `the focus on “${focused.text}” cannot be seen`);
    if (focused.text === wanted) return;
  }
  assert.fail(`Tab does not lead to “${wanted}”`);
}

const failures = await runTests('story', {
  async 'a code signs in once, and is not left in the address'() {
    const url = (await server.run('console', '--no-open', '--data-dir', 'data')).trim();
    const { page, seen, finish } = await openPage(browser, server);
    await page.goto(url);
    await page.waitForSelector('h1:has-text("Overview")');
    assert.equal(new URL(page.url()).hash, '');
    assert.match((await stored(page)).session, /tgs_/, 'the session is kept in the tab');
    assert.ok(!seen.calls.some((call) => call.includes(server.token)));
    await page.click('text=Sign out');
    await page.waitForSelector('#token');
    assert.deepEqual(await stored(page), { local: '{}', session: '{}', cookie: '' });
    const code = new URL(url).hash;
    await page.goto(`${server.url}/console/?again${code}`);
    await page.waitForSelector('.notice:has-text("run tidegate console again")');
    await finish(/status of 401/);
  },

  async 'a token becomes a session that a reload keeps, and is itself kept nowhere'() {
    const { page, seen, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/changes');
    await page.waitForSelector('h1:has-text("Changes")');
    await page.reload();
    await page.waitForSelector('h1:has-text("Changes")');
    const kept = await stored(page);
    assert.match(kept.session, /tgs_/);
    assert.ok(!Object.values(kept).some((text) => text.includes(server.token)), 'the token is in no storage');
    assert.ok(!(await page.content()).includes(server.token));
    assert.ok(!seen.bodies.some((body) => body.includes(server.token)));
    await page.click('text=Sign out');
    await page.reload();
    await page.waitForSelector('#token');
    await finish(failedWith(401));
  },

  async 'a code that does not work leaves the session that there is'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.evaluate(() => { location.hash = '#code=wrong'; });
    await page.waitForSelector('.notice:has-text("Still signed in as before")');
    assert.ok(await page.locator('text=Sign out').isVisible());
    await page.click('a:has-text("Changes")');
    await page.waitForSelector('h1:has-text("Changes")');
    await finish(/status of 401/);
  },

  async 'the overview moves, and a denied client is explained and let through with three clicks'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.waitForSelector('.badge:has-text("live")');
    const denied = () => page.locator('section[aria-label="Rules"] tbody tr:has-text("per-user") td').nth(4).innerText();
    const first = await denied();
    await until('the denials of the rule grow', async () => (await denied()) !== first);
    await until('the denied rate is above zero', async () => Number((await text(page, '.tile.denied .value')).replace(/[^\d.]/g, '')) > 0);
    assert.ok(await page.locator('canvas').count() >= 2, 'charts are drawn');

    let clicks = 0;
    const click = async (selector) => { clicks += 1; await page.locator(selector).first().click(); };
    assert.equal((await check('scraper-7')).status, 429);
    await click('a:has-text("scraper-7")');
    await page.waitForSelector('.verdict.bad');
    const verdict = await text(page, '.verdict');
    assert.match(verdict, /Denied/);
    assert.match(verdict, /by per-user/);
    assert.match(verdict, /The limit is used up/);
    assert.ok(await page.locator('[role=meter]').count() >= 1, 'a bar for each counter');
    await click('.verdict button:has-text("Override")');
    assert.equal(await page.inputValue('#o-key'), 'scraper-7');
    assert.equal(await page.locator('#o-for option:checked').innerText(), '10 minutes');
    assert.equal(await page.inputValue('#o-limit'), '120/hour burst 40', 'twice what it has');
    await page.keyboard.type('6000/minute');
    await page.locator('#o-reason').evaluate((input) => { input.value = 'asked by support'; });
    await click('dialog button[type=submit]');
    await page.waitForSelector('.verdict.good');
    assert.ok(clicks <= 3, `${clicks} clicks`);
    for (let times = 0; times < 30; times += 1) assert.equal((await check('scraper-7')).status, 200);
    const [override] = (await server.call('GET', '/v1/rules/per-user/overrides')).body.overrides;
    assert.equal(override.reason, 'asked by support');
    const lasts = (Date.parse(override.expires_at) - Date.now()) / 1000;
    assert.ok(lasts > 500 && lasts <= 600, `${lasts} s`);

    await page.locator('.explained button:has-text("Remove")').first().click();
    await page.locator('dialog button:has-text("Remove")').click();
    await until('it is denied again', async () => (await check('scraper-7')).status === 429);
    await page.waitForSelector('.verdict.bad');
    await page.locator('button:has-text("Reset counters")').click();
    await page.locator('dialog button:has-text("Reset")').click();
    await page.waitForSelector('#messages .notice.good:has-text("per-user")');
    await finish();
  },

  async 'the page of a rule says what its limits admit at the most, and that of a client the rate next to the burst'() {
    const { page, signIn, show, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/per-user');
    await page.waitForSelector('.promises');
    const promises = await text(page, '.promises');
    assert.match(promises, /at most 79 in any hour: 20 at once, then one every minute/);
    assert.match(promises, /Tier pro\s+at most 11,999 in any minute: 6,000 at once, then one every 10 ms/);
    assert.ok(!(await text(page, 'pre.code')).includes('worst_case'), 'it is not part of the text');
    await show('#/client?rule=per-user&a.user_id=scraper-7&a.path=/v1/orders');
    const counter = page.locator('.counter').first();
    await counter.waitFor();
    assert.match(await counter.innerText(), /of burst 20 requests used/);
    assert.match(await counter.innerText(), /60 requests per 1 h/);
    assert.match(await counter.innerText(), /at most 79 in any hour/);
    await finish();
  },

  async 'the keyboard alone is enough'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.waitForSelector('a:has-text("scraper-7")');
    const isOnSkip = () => page.evaluate(() => document.activeElement.className === 'skip');
    for (let times = 0; times < 20 && !(await isOnSkip()); times += 1) await page.keyboard.press('Shift+Tab');
    assert.ok(await isOnSkip(), 'the first link skips the bar');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.tagName), 'H1');
    await tabTo(page, 'scraper-7');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.verdict.bad');
    await tabTo(page, 'Override…');
    await page.keyboard.press('Enter');
    await page.waitForSelector('dialog[open]');
    for (let times = 0; times < 12; times += 1) {
      await page.keyboard.press('Tab');
      const isOutside = await page.evaluate(() => document.activeElement !== document.body && !document.activeElement.closest('dialog'));
      assert.ok(!isOutside, 'the focus left the dialog');
    }
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => document.activeElement.innerText), 'Override…', 'the focus returns');
    await page.keyboard.press('Enter');
    await page.waitForSelector('dialog[open]');
    await page.keyboard.type('6000/minute');
    await tabTo(page, 'o-reason');
    await page.keyboard.type('by keyboard');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.verdict.good');
    assert.equal((await check('scraper-7')).status, 200);
    await server.call('DELETE', '/v1/rules/per-user/overrides/scraper-7');
    await finish();
  },

  async 'nothing is lifted by pressing Enter twice, and unlimited is asked for twice'() {
    const { page, seen, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/client?rule=per-user&a.user_id=scraper-7');
    for (const label of ['Override…', 'Reset counters…']) {
      await page.locator(`.verdict button:text-is("${label}")`).focus();
      await page.keyboard.press('Enter');
      await page.waitForSelector('dialog[open]');
      if (label === 'Override…') assert.equal(await page.evaluate(() => document.activeElement.id), 'o-limit', 'the focus is on the limit');
      await page.keyboard.press('Enter');
      await page.keyboard.press('Escape');
      await page.waitForSelector('dialog', { state: 'detached' });
    }
    assert.deepEqual(seen.calls.filter((call) => /POST .*(overrides|reset)$/.test(call)), [], 'nothing was sent');

    await page.locator('.verdict button:text-is("Override…")').click();
    for (const [label, limit] of [['Block', 'blocked'], ['×10', '600/hour burst 200'], ['×2', '120/hour burst 40']]) {
      await page.locator(`dialog button:text-is("${label}")`).click();
      assert.equal(await page.inputValue('#o-limit'), limit);
    }
    await page.fill('#o-limit', 'unlimited');
    await page.locator('dialog button[type=submit]').click();
    await page.waitForSelector('dialog h2:has-text("Lift the limit?")');
    await page.keyboard.press('Enter');
    await until('Enter leads back to the first question', async () => (await page.locator('dialog').count()) === 1);
    assert.deepEqual(await overrides(), []);
    await page.locator('dialog button[type=submit]').click();
    await page.locator('dialog button:text-is("Lift the limit")').click();
    await until('it is lifted', async () => (await overrides())[0]?.limit === 'unlimited');
    await page.waitForSelector('.verdict.good');
    await server.call('DELETE', '/v1/rules/per-user/overrides/scraper-7');
    await finish();
  },

  async 'all overrides are in one list, found and removed there'() {
    for (const [rule, key, limit] of [['per-user', 'vip-1', '9000/minute'], ['per-user', 'vip-2', 'blocked'], ['login', '203.0.113.9', '99/minute']]) {
      assert.equal((await server.call('POST', `/v1/rules/${rule}/overrides`, { key, limit, for: '1h', reason: `for ${key}` })).status, 201);
    }
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.click('nav a:has-text("Overrides")');
    const rows = page.locator('main tbody tr');
    await until('three rows', async () => (await rows.count()) === 3);
    await page.fill('#override-search', 'for vip-2');
    await until('one row', async () => (await rows.count()) === 1);
    assert.match(await rows.innerText(), /vip-2\s+per-user\s+blocked/);
    await rows.locator('button:has-text("Remove")').click();
    await page.locator('dialog button:text-is("Remove")').click();
    await until('it is removed', async () => (await overrides()).every(({ key }) => key !== 'vip-2'));
    // The closing dialog gives the focus back, and the list follows: only then is the search free to be emptied.
    await until('the dialog has closed', async () => (await page.locator('dialog').count()) === 0);
    await until('the list is empty', async () => /^None/.test(await rows.innerText()));
    await page.fill('#override-search', '');
    await until('two rows', async () => (await rows.count()) === 2);
    for (const { rule, key } of await overrides()) await server.call('DELETE', `/v1/rules/${rule}/overrides/${key}`);
    await finish();
  },

  async 'times are local, or in UTC on request, and each chart is also a table'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/per-user');
    await page.waitForSelector('.badge:has-text("live")');
    await page.locator('summary:has-text("as a table")').click();
    await page.waitForSelector('details[open] table td');
    assert.ok(await page.locator('details[open] tbody tr').count() >= 10);
    await page.click('#zone');
    assert.equal(await page.getAttribute('#zone', 'aria-pressed'), 'true');
    await page.locator('summary:has-text("as a table")').click();
    await page.waitForSelector('th:has-text("From (UTC)")');
    await finish();
  },
});

await browser.close();
await load.stop();
await server.stop();
process.exitCode = failures > 0 ? 1 : 0;
