// Rules that count another unit than requests: every number of theirs says which. Open reservations, and what becomes of them.

import assert from 'node:assert/strict';
import { openBrowser, openPage, runTests, until } from './browser.mjs';
import { startServer } from './server.mjs';

const server = await startServer({ rules: [
  { id: 'requests', per: ['user_id'], missing: 'deny', limit: '300/minute' },
  { id: 'tokens', per: ['user_id'], missing: 'deny', unit: 'output_tokens', limit: '1000/hour', algorithm: 'fixed_window', warn_at: 80, unsettled: 'give_back', tiers: { batch: '5000/hour; 20000/day' } },
] });
const browser = await openBrowser();
const reserve = (user, tokens) => server.call('POST', '/v1/reserve', { attributes: { user_id: user }, costs: { output_tokens: tokens } });
const text = (page, selector) => page.locator(selector).first().innerText();
const section = (label) => `section[aria-label="${label}"]`;

const made = await reserve('writer', 600);
assert.equal(made.status, 200);
assert.equal((await reserve('writer', 300)).status, 200);
assert.equal((await reserve('writer', 600)).status, 429);

const failures = await runTests('budgets', {
  async 'the overview has the open reservations, and the unit of each limit and of its use'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.waitForSelector(`${section('Health')} dt:has-text("Open reservations")`);
    const health = await text(page, section('Health'));
    assert.match(health, /Open reservations\s+2\b/);
    const row = `${section('Rules')} tbody tr:has-text("tokens")`;
    await page.waitForSelector(row);
    await until('the use of the rule is shown', async () => /[1-9][\d.]*\s+output tokens/.test((await text(page, row)).replace('1000 output tokens/hour', '')));
    assert.match(await text(page, row), /1000 output tokens\/hour/);
    assert.match(await text(page, `${section('Rules')} tbody tr:has-text("300/minute")`), /[\d.]+\s+requests?/);
    await finish();
  },

  async 'the page of a rule says what it counts, when it warns and what becomes of unsettled reservations'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/tokens');
    await page.waitForSelector('.promises');
    const facts = await text(page, '.budget');
    assert.match(facts, /Counts\s+output tokens/);
    assert.match(facts, /Warns\s+once a counter has used 80 % of its limit/);
    assert.match(facts, /Unsettled\s+a reservation that expires is given back/);
    assert.match(await text(page, '.page-head'), /1000 output tokens\/hour/);
    assert.match(await text(page, '.promises'), /output_tokens: 1,000 in each hour/);
    await page.waitForSelector('figure:has-text("Use, in output tokens") canvas');
    assert.match(await text(page, 'figure:has-text("Use, in output tokens") .legend'), /Used .* output tokens\/s/);
    assert.match(await text(page, 'figure:has-text("Requests by outcome") .legend'), /Denied .* requests\/s/);
    await page.click(`${section('Top clients')} button:has-text("Used")`);
    await until('the use of the client', async () => /\b900 output tokens\s+exactly 900 output tokens/.test(await text(page, `${section('Top clients')} tbody`)));
    await finish();
  },

  async 'a rule that counts requests says so, and has no second chart'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/requests');
    await page.waitForSelector('.promises');
    const facts = await text(page, '.budget');
    assert.match(facts, /Counts\s+requests/);
    assert.match(facts, /keeps its estimate/);
    assert.ok(!facts.includes('Warns'));
    assert.equal(await page.locator('figure:has-text("Use, in")').count(), 0);
    await finish();
  },

  async 'a client is explained by the cost in one unit, and its counters, demand and limit have their units'() {
    const { page, seen, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/client?rule=tokens&a.user_id=writer');
    await page.waitForSelector('.verdict');
    const counters = () => page.locator('.counter').allInnerTexts().then((all) => all.join('\n'));
    // With the one that is asked for.
    assert.match(await counters(), /901 of 1,000 output tokens used/);
    assert.match(await counters(), /\d of 300 requests used/);
    assert.match(await text(page, 'article[aria-label="Rule tokens"]'), /grants 1000 output tokens\/hour/);
    await page.waitForSelector('.notice:has-text("output tokens a minute")');
    assert.match(await text(page, '.notice:has-text("output tokens a minute")'), /limit 1,000 output tokens an hour/);

    await page.fill('#cost', '60');
    await page.selectOption('#cost-unit', 'output_tokens');
    await page.click('button:has-text("Explain")');
    await page.waitForSelector('.verdict.careful, .verdict.good');
    await page.fill('#cost', '200');
    await page.click('button:has-text("Explain")');
    await page.waitForSelector('.verdict.bad');
    assert.match(await text(page, '.verdict'), /100 of 1,000 output tokens remain/);
    assert.match(page.url(), /cost=200&unit=output_tokens/);
    assert.ok(seen.bodies.some((body) => body.includes('"allowed":false')));
    await page.reload();
    await page.waitForSelector('.verdict.bad');
    assert.equal(await page.inputValue('#cost-unit'), 'output_tokens');

    await page.locator('.verdict button:has-text("Override")').click();
    const dialog = await text(page, 'dialog');
    assert.match(dialog, /It has 1000 output tokens\/hour now/);
    assert.match(dialog, /The rule counts output tokens/);
    await page.keyboard.press('Escape');
    await finish();
  },

  async 'lists of clients and of overrides, and the last decision, have the unit'() {
    await server.call('POST', '/v1/rules/tokens/overrides', { key: 'reader', limit: '2000/hour', for: '1h', reason: 'a trial' });
    const { page, signIn, show, finish } = await openPage(browser, server);
    await signIn(server.token, '#/overrides');
    await page.waitForSelector('tbody:has-text("reader")');
    assert.match(await text(page, 'tbody'), /2000 output tokens\/hour/);
    await show('#/client');
    await page.waitForSelector('tbody:has-text("writer")');
    assert.match(await text(page, 'tbody tr:has(a:has-text("tokens"))'), /900 output tokens/);
    await show('#/client?rule=tokens&a.user_id=writer');
    await page.waitForSelector(section('Last decision'));
    assert.match(await text(page, section('Last decision')), /Cost\s+\d+ output tokens/);
    await show('#/rules/tokens');
    await page.waitForSelector('.timeline:has-text("reader has 2000 output tokens/hour")');
    await show('#/rules/tokens/edit');
    await page.waitForSelector('.hint:has-text("unit")');
    await finish();
  },

  async 'a reservation that is settled is open no more'() {
    const settled = await server.call('POST', `/v1/reservations/${made.body.reservation}/settle`, { costs: { output_tokens: 100 } });
    assert.equal(settled.status, 200);
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token);
    await page.waitForSelector(`${section('Health')} dt:has-text("Open reservations")`);
    assert.match(await text(page, section('Health')), /Open reservations\s+1\b/);
    await finish();
  },
});
await browser.close();
await server.stop();
process.exitCode = failures > 0 ? 1 : 0;
