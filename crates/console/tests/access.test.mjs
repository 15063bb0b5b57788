// Who may do what: read-only tokens, rules from a file, secrets, and names that clients chose.

import assert from 'node:assert/strict';
import { failedWith, openBrowser, openPage, runTests, until } from './browser.mjs';
import { ESCAPE, HOSTILE, RULES, SECRET, startLoad, startServer } from './server.mjs';

const CONFIG = `
tokens:
  - {name: dashboard, token_env: READER, scopes: [read]}
  - {name: edge, token_env: EDGE, scopes: [check]}
  - {name: ops, token_env: OPS, scopes: [read, write, check]}
`;
const server = await startServer({
  flags: ['--config', 'tidegate.yaml'], files: { 'tidegate.yaml': CONFIG },
  environment: { READER: 'r-secret', EDGE: 'e-secret', OPS: 'o-secret' }, token: 'o-secret',
});
const load = startLoad(server);
const browser = await openBrowser();
const HARMLESS = /^POST \/v1\/(explain|rules\/[^/]+\/validate|console\/session)$/;

const failures = await runTests('access', {
  async 'a token that may not read does not sign in'() {
    const { page, finish } = await openPage(browser, server);
    await page.goto(`${server.url}/console/`);
    for (const [token, message] of [['guess', /unknown token/], ['e-secret', /needs the scope read/]]) {
      await page.fill('#token', token);
      await page.keyboard.press('Enter');
      await until(`the refusal of ${token}`, async () => message.test(await page.locator('.sign-in').innerText()));
    }
    await finish(failedWith(401, 403));
  },

  async 'a read-only token sees everything, changes nothing, and learns why'() {
    const { page, seen, signIn, show, finish } = await openPage(browser, server);
    await signIn('r-secret');
    assert.ok(await page.locator('header .badge:has-text("read-only")').isVisible());
    const pages = [
      ['#/rules/per-user', ['Edit', 'Add']],
      ['#/client?rule=per-user&a.user_id=scraper-7', ['Override…', 'Reset counters…']],
      ['#/rules', ['Add a rule']],
      ['#/overrides', []],
      ['#/changes', []],
    ];
    for (const [route, labels] of pages) {
      await show(route);
      for (const label of labels) {
        const button = page.locator(`main button:text-is("${label}")`).first();
        await button.waitFor();
        assert.equal(await button.getAttribute('aria-disabled'), 'true', label);
        await button.click({ force: true });
        await page.waitForSelector('dialog:has-text("has no scope “write”")');
        await page.keyboard.press('Escape');
      }
    }
    await show('#/rules/per-user/edit');
    await page.waitForSelector('.notice:has-text("has no scope “write”")');
    assert.ok(await page.locator('#rule-text').evaluate((text) => text.readOnly));
    const writes = seen.calls.filter((call) => !call.startsWith('GET ') && !HARMLESS.test(call));
    assert.deepEqual(writes, []);
    const refused = await server.call('PUT', '/v1/rules', { rules: [] }, { authorization: 'Bearer r-secret' });
    assert.equal(refused.status, 403);
    await finish();
  },

  async 'names that clients chose are shown and do nothing'() {
    const { page, signIn, show, finish } = await openPage(browser, server);
    await signIn('o-secret', '#/rules/per-user');
    const link = page.locator(`a:has-text("${HOSTILE}")`).first();
    await link.waitFor();
    await page.locator('a:has-text("\\\\u{1b}[2J\\\\u{202e}gone")').first().waitFor();
    await link.click();
    await page.waitForSelector('.verdict');
    assert.ok((await page.locator('main').innerText()).includes(HOSTILE));
    await show(`#/client?rule=per-user&${new URLSearchParams({ 'a.user_id': ESCAPE })}`);
    await page.waitForSelector('.verdict');
    assert.ok(!/[\u001b\u202e]/.test(await page.locator('main').innerText()), 'nothing steers the reader');
    assert.equal(await page.locator('main img').count(), 0);
    await finish();
  },

  async 'a secret key is never seen'() {
    const { page, seen, signIn, show, finish } = await openPage(browser, server);
    await signIn('o-secret', '#/rules/partner');
    const link = page.locator('section[aria-label="Top clients"] tbody a').first();
    await link.waitFor();
    const shown = await link.innerText();
    assert.match(shown, /^sk_l…[0-9a-f]{12}$/);
    await link.click();
    await page.waitForSelector('.verdict.bad');
    assert.ok((await page.locator('.explained').first().innerText()).includes(shown));
    const place = await page.locator('.attributes input').evaluateAll((inputs) => inputs.findIndex((input) => input.value === 'api_key'));
    const field = page.locator('.attributes input').nth(place + 1);
    assert.equal(await field.inputValue(), shown);
    assert.equal(await field.getAttribute('type'), 'text', 'a digest may be seen');
    await field.fill(SECRET);
    assert.equal(await field.getAttribute('type'), 'password', 'the key may not');
    await page.locator('button:text-is("Explain")').click();
    await until('it is explained by its key', async () => !page.url().includes('api_key'));
    await page.waitForSelector('.verdict.bad');
    assert.ok((await page.locator('.explained').first().innerText()).includes(shown));
    assert.ok(!page.url().includes(SECRET) && !(await page.content()).includes(SECRET));
    await page.fill('#find', SECRET);
    await page.locator(`.found a:has-text("${shown}")`).waitFor();
    assert.ok(!(await page.evaluate(() => JSON.stringify(sessionStorage))).includes(SECRET));
    assert.ok(!(await page.content()).includes(SECRET), 'a key finds its client, as a digest');

    for (const route of ['#/', '#/rules/partner', '#/changes']) {
      await show(route);
      await page.waitForSelector('.panel');
      await page.waitForTimeout(300);
      assert.ok(!(await page.content()).includes(SECRET), route);
    }
    assert.ok(!seen.bodies.some((body) => body.includes(SECRET)), 'in an answer of the server');
    assert.ok(!server.log().includes(SECRET), 'in the log');
    await finish();
  },

  async 'rules from a file cannot be changed here, and the page says where the file is'() {
    const rules = JSON.stringify({ rules: RULES });
    const other = await startServer({ flags: ['--rules', 'rules.yaml'], files: { 'rules.yaml': rules }, rules: null });
    const { page, signIn, show, finish } = await openPage(browser, other);
    await signIn(other.token, '#/rules/per-user');
    await page.waitForSelector('.notice:has-text("rules.yaml")');
    assert.equal(await page.locator('button:has-text("Edit")').getAttribute('aria-disabled'), 'true');
    await show('#/rules/per-user/edit');
    await page.waitForSelector('.notice:has-text("rules.yaml")');
    assert.equal(await page.locator('button:has-text("Review changes")').count(), 0);
    await show('#/rules');
    assert.equal(await page.locator('button:has-text("Add a rule")').getAttribute('aria-disabled'), 'true');
    await show('#/add-rule');
    await page.waitForSelector('.notice:has-text("rules.yaml")');
    assert.equal(await page.locator('button:has-text("Review the rule")').count(), 0);
    await finish();
    await other.stop();
  },

  async 'a session that the server ended leads back to the sign-in'() {
    const short = await startServer();
    const { page, finish } = await openPage(browser, short);
    const url = (await short.run('console', '--no-open', '--data-dir', 'data')).trim();
    await page.goto(url);
    await page.waitForSelector('h1:has-text("Overview")');
    await page.evaluate(() => { location.hash = '#/changes'; });
    await page.waitForSelector('h1:has-text("Changes")');
    const [token] = await Promise.all([page.waitForRequest(/rules\/history/), page.evaluate(() => { location.hash = '#/client'; }).then(() => page.evaluate(() => { location.hash = '#/changes'; }))]);
    const { authorization } = await token.allHeaders();
    assert.ok(authorization.startsWith('Bearer tgs_'), 'a session, not the token');
    await short.call('DELETE', '/v1/console/session', undefined, { authorization });
    await page.evaluate(() => { location.hash = '#/client'; });
    await page.waitForSelector('.notice:has-text("The session of the console has ended")');
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
    await finish(failedWith(401));
    await short.stop();
  },
});

await browser.close();
await load.stop();
await server.stop();
process.exitCode = failures > 0 ? 1 : 0;
