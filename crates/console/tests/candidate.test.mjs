// A candidate on the page of its rule: next to the limit, in the chart, its clients, its rollout and its promotion.

import assert from 'node:assert/strict';
import { candidateText, promoted } from '../page/promoted.js';
import { openBrowser, openPage, runTests, until } from './browser.mjs';
import { startServer } from './server.mjs';

const TRIED = { id: 'tried', match: { path: ['/v1/**'] }, per: ['user_id'], missing: 'deny', limit: '50/hour', candidate: '2/hour' };
const browser = await openBrowser();

async function send(server, user, times) {
  for (let time = 0; time < times; time += 1) {
    await server.call('POST', '/v1/check', { attributes: { path: '/v1/a', user_id: user } });
  }
}

const failures = await runTests('candidate', {
  async 'a rule is promoted as the server does it'() {
    const rule = { id: 'a', per: ['ip'], limit: '9/s', algorithm: 'fixed_window', anchor: 'first_request', worst_case: {} };
    assert.deepEqual(promoted({ ...rule, candidate: '5/s', rollout: '10%' }), { id: 'a', per: ['ip'], limit: '5/s', algorithm: 'fixed_window', anchor: 'first_request' });
    assert.deepEqual(promoted({ ...rule, candidate: { algorithm: 'token_bucket' } }), { id: 'a', per: ['ip'], limit: '9/s', algorithm: 'token_bucket' });
    assert.deepEqual(promoted({ ...rule, candidate: { requests: 5, window: '1s' } }).limit, { requests: 5, window: '1s' });
    assert.equal(promoted({ id: 'a', limit: '9/s', mode: 'shadow' }).mode, undefined);
    assert.equal(promoted({ id: 'a', limit: '9/s' }), null);
    assert.equal(candidateText({ limit: '9/s', candidate: { tiers: { pro: '5/s' }, algorithm: 'fixed_window' } }), '9/s, other tiers, algorithm fixed_window');
  },

  async 'the page shows the candidate, rolls it out and promotes it'() {
    const server = await startServer({ rules: [TRIED] });
    await send(server, 'u1', 6);
    await send(server, 'u2', 1);
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/tried');
    const panel = page.locator('section[aria-label="Candidate"]');
    await panel.waitFor();
    assert.match(await panel.innerText(), /Limit\s+50\/hour\s+Candidate\s+2\/hour/);
    await until('its numbers', async () => /Would have been denied: 4 of 7 requests/.test(await panel.innerText()));
    await until('its clients', async () => /u1\s+newly denied\s+4\s+0/.test(await panel.innerText()));
    assert.match(await page.locator('.legend').first().innerText(), /would have been denied/);

    await panel.locator('button:has-text("Rollout…")').click();
    await page.fill('#r-share', '10');
    await page.locator('dialog button:has-text("Set")').click();
    await page.locator('dialog .notice.bad').waitFor();
    await page.fill('#r-share', '25%');
    await page.locator('dialog button:has-text("Set")').click();
    await until('the rollout', async () => (await server.call('GET', '/v1/rules/tried')).body.rollout === '25%');
    await until('it is shown', async () => /the candidate for 25% of the keys/.test(await panel.innerText()));

    await panel.locator('button:has-text("Promote…")').click();
    const diff = page.locator('dialog .diff');
    assert.match(await diff.innerText(), /\+ {4}limit: 2\/hour/);
    assert.equal((await server.call('GET', '/v1/rules/tried')).body.limit, '50/hour', 'a preview changes nothing');
    await page.locator('dialog button:text-is("Promote")').click();
    await until('it is promoted', async () => (await server.call('GET', '/v1/rules/tried')).body.limit === '2/hour');
    await until('the panel is gone', async () => (await panel.count()) === 0);
    await finish(/status of 422/);
    await server.stop();
  },

  async 'with rules from a file it shows the lines to write'() {
    const server = await startServer({ flags: ['--rules', 'rules.yaml'], files: { 'rules.yaml': JSON.stringify({ rules: [TRIED] }) }, rules: null });
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/tried');
    await page.locator('section[aria-label="Candidate"] button:has-text("Promote…")').click();
    const lines = page.locator('dialog pre');
    await lines.waitFor();
    assert.match(await lines.innerText(), /limit: 2\/hour/);
    assert.ok(!/candidate/.test(await lines.innerText()));
    await finish();
    await server.stop();
  },
});

await browser.close();
process.exitCode = failures > 0 ? 1 : 0;
