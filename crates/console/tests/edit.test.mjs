// Editing a rule: the server's messages, conflicts, and the way back.

import assert from 'node:assert/strict';
import { failedWith, openBrowser, openPage, runTests, until } from './browser.mjs';
import { startServer } from './server.mjs';

const server = await startServer();
const browser = await openBrowser();

const rule = () => server.call('GET', '/v1/rules/per-user');
const version = async () => (await server.call('GET', '/v1/rules')).body.version;

/** Replaces a part of the text of the rule, as typing does. */
async function type(page, from, to) {
  await page.waitForFunction(() => document.querySelector('#rule-text')?.value.includes('per-user'));
  const text = await page.inputValue('#rule-text');
  assert.ok(text.includes(from), text);
  await page.fill('#rule-text', text.replace(from, to));
}

const failures = await runTests('edit', {
  async 'a bad edit shows the message of the server at its line, and changes nothing'() {
    const { page, seen, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/per-user');
    const before = await rule();
    await page.locator('button:has-text("Edit")').click();
    await type(page, '60/hour', '60/hou');
    const text = await page.inputValue('#rule-text');
    const line = text.split('\n').findIndex((one) => one.startsWith('limit:')) + 1;
    const [problem] = (await server.call('POST', '/v1/rules/per-user/validate', { text })).body.problems;
    assert.equal(problem.line, line);
    const shown = page.locator('.problems li');
    await until('the problem is shown', async () => (await shown.count()) === 1);
    assert.equal(await shown.innerText(), `Line ${line}\n${problem.field}: ${problem.message.replaceAll('`', '')}`);
    assert.equal((await page.locator('.lines .bad').innerText()).trim(), `● ${line}`);
    assert.equal(await page.getAttribute('#rule-text', 'aria-invalid'), 'true');
    await page.locator('button:has-text("Review changes")').click({ force: true });
    assert.equal(await page.locator('dialog').count(), 0);
    await shown.locator('button').click();
    const caret = await page.evaluate(() => document.querySelector('#rule-text').selectionStart);
    assert.equal(text.slice(0, caret).split('\n').length, line, 'the message leads to its line');
    assert.deepEqual(await rule(), before);
    assert.ok(!seen.calls.some((call) => call.startsWith('PUT')), 'nothing was sent');
    await finish();
  },

  async 'a concurrent change is a clear conflict, and neither is lost'() {
    const { page, signIn, show, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/per-user/edit');
    await type(page, '60/hour burst 20', '90/hour burst 20');
    await page.locator('button:has-text("Review changes")').click();
    const diff = page.locator('dialog .diff');
    assert.match(await diff.locator('.removed').innerText(), /- limit: 60\/hour burst 20/);
    assert.match(await diff.locator('.added').innerText(), /\+ limit: 90\/hour burst 20/);
    const theirs = { ...(await rule()).body, description: 'Changed by another operator.' };
    await server.call('PUT', '/v1/rules/per-user', theirs);
    await page.locator('dialog button:has-text("Apply")').click();
    const conflict = page.locator('.notice.bad:has-text("Conflict: per-user was changed meanwhile by admin-token")');
    await conflict.waitFor();
    assert.match(await conflict.innerText(), /Nothing was changed by you/);
    assert.match(await conflict.locator('.added').innerText(), /Changed by another operator/);
    assert.equal((await rule()).body.limit, '60/hour burst 20');
    assert.match(await page.inputValue('#rule-text'), /90\/hour/, 'the text is kept');
    await conflict.locator('button:has-text("Discard my text")').click();
    await type(page, '60/hour burst 20', '90/hour burst 20');
    await page.locator('button:has-text("Review changes")').click();
    await page.locator('dialog button:has-text("Apply")').click();
    await page.waitForSelector('#messages .notice.good');
    const now = (await rule()).body;
    assert.equal(now.limit, '90/hour burst 20');
    assert.equal(now.description, 'Changed by another operator.');
    await show('#/rules/per-user');
    await page.waitForSelector('pre:has-text("90/hour")');
    await finish(failedWith(412));
  },

  async 'an edit survives a restart of the server, a new sign-in and a reload'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/per-user/edit');
    await type(page, '90/hour burst 20', '70/hour burst 20');
    await page.waitForSelector('#rule-state:text-is("Valid.")');
    await server.restart();
    await page.waitForSelector('.notice:has-text("The server was restarted")');
    assert.match(await page.locator('.sign-in').innerText(), /The text that you were editing is kept/);
    assert.ok(!(await page.evaluate(() => JSON.stringify(sessionStorage))).includes('tgs_'), 'the session is removed');
    await page.fill('#token', server.token);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.notice:has-text("Your text is back")');
    assert.match(await page.inputValue('#rule-text'), /70\/hour burst 20/);
    await page.reload();
    await page.waitForSelector('.notice:has-text("Your text is back")');
    assert.match(await page.inputValue('#rule-text'), /70\/hour burst 20/);
    await page.locator('button:has-text("Review changes")').click();
    assert.match(await page.locator('dialog .diff .added').innerText(), /\+ limit: 70\/hour burst 20/);
    await page.locator('dialog button:text-is("Apply")').click();
    await page.waitForSelector('#messages .notice.good');
    assert.equal((await rule()).body.limit, '70/hour burst 20');
    assert.ok(!(await page.evaluate(() => JSON.stringify(sessionStorage))).includes('70/hour'), 'the draft is gone');

    await page.locator('button:has-text("Edit")').click();
    await type(page, '70/hour burst 20', '71/hour burst 20');
    await page.locator('a:text-is("Cancel")').click();
    await page.locator('button:has-text("Edit")').click();
    await page.waitForSelector('#rule-text');
    assert.match(await page.inputValue('#rule-text'), /70\/hour burst 20/, 'cancelled');
    await finish(/status of 401|ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/);
  },

  async 'a kept text does not overwrite a change that came in between'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules/per-user/edit');
    await type(page, '70/hour burst 20', '75/hour burst 20');
    await server.call('PUT', '/v1/rules/per-user', { ...(await rule()).body, description: 'Changed over the weekend.' });
    await page.reload();
    await page.waitForSelector('.notice.bad:has-text("Conflict: per-user was changed meanwhile")');
    assert.match(await page.inputValue('#rule-text'), /75\/hour burst 20/);
    await page.locator('button:has-text("Discard it")').click();
    await page.waitForFunction(() => document.querySelector('#rule-text').value.includes('over the weekend'));
    assert.match(await page.inputValue('#rule-text'), /70\/hour burst 20/);
    await finish();
  },

  async 'a rule is added from a template, after the server has checked it'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules');
    await page.locator('button:text-is("Add a rule")').click();
    await page.waitForSelector('#rule-text');
    const text = await page.inputValue('#rule-text');
    await page.fill('#rule-text', text.replace('new-rule', 'exports').replace('100/minute', '100/minut'));
    await page.waitForSelector('.problems li.bad');
    await page.fill('#rule-text', text.replace('new-rule', 'exports').replace('/v1/**', '/exports/**'));
    await page.waitForSelector('#rule-state:text-is("Valid.")');
    await page.locator('button:text-is("Review the rule")').click();
    await page.locator('dialog button:text-is("Add")').click();
    await page.waitForSelector('h1:has-text("exports")');
    const added = (await server.call('GET', '/v1/rules/exports')).body;
    assert.deepEqual([added.limit, added.mode, added.match.path], ['100/minute', 'shadow', ['/exports/**']]);
    assert.equal(await page.evaluate(() => sessionStorage.getItem('tidegate-draft')), null);
    await page.click('nav a:has-text("Rules")');
    await page.waitForSelector('tbody tr:has-text("exports"):has-text("shadow")');
    await finish();
  },

  async 'a rollback is shown before it is done'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/changes');
    const before = await version();
    const first = page.locator('.timeline > li').last();
    await first.locator('button:has-text("Roll back to this")').click();
    await page.waitForSelector('dialog .diff .added');
    assert.match(await page.locator('dialog .diff').innerText(), /limit: 60\/hour burst 20/);
    await page.locator('dialog button:has-text("Cancel")').click();
    assert.equal(await version(), before, 'a preview changes nothing');
    await first.locator('button:has-text("Roll back to this")').click();
    await page.waitForSelector('dialog .diff');
    await page.locator('dialog button.first').click();
    await page.waitForSelector('#messages .notice.good:has-text("Back to version 1")');
    assert.equal((await rule()).body.limit, '60/hour burst 20');
    assert.equal(await version(), before + 1);
    await page.waitForSelector(`h3:has-text("Version ${before + 1}")`);
    const details = page.locator('.timeline > li').first();
    await details.locator('summary').click();
    await details.locator('.diff .added').first().waitFor();
    await finish();
  },

  async 'a rollback whose preview is stale does nothing'() {
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/changes');
    const [, previous] = await page.locator('button:has-text("Roll back to this")').all();
    await (previous ?? page.locator('button:has-text("Roll back to this")').first()).click();
    await page.waitForSelector('dialog .diff');
    const theirs = { ...(await rule()).body, description: 'Once more.' };
    await server.call('PUT', '/v1/rules/per-user', theirs);
    const now = await version();
    await page.locator('dialog button.first').click();
    await page.waitForSelector('#messages .notice.bad:has-text("Conflict")');
    assert.equal(await version(), now);
    await finish(failedWith(412));
  },
});

await browser.close();
await server.stop();
process.exitCode = failures > 0 ? 1 : 0;
