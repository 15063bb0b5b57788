// Rules that come from a management server or from a folder: where they come from and how old they are, in words when
// something is wrong; their list by domain and path; what can be done, and why the rest cannot.

import assert from 'node:assert/strict';
import { access, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { failedWith, openBrowser, openPage, readAxe, runTests, until } from './browser.mjs';
import { requestOf, routesOf, startManagement, startServer } from './server.mjs';

// Longer than anything takes on a busy machine, in milliseconds.
const LONG = 120_000;
const DOMAIN = 'infra/gw/http';
const PATH = 'infra/gw/http.httproute/infra/web-0/rule/0/match/0/*_httproute/infra/web-0/rule/0/match/0/*.rule-0-match-0';
const MESSAGING = {
  domain: 'messaging',
  descriptors: [
    { key: 'message_type', value: 'marketing', rate_limit: { unit: 'day', requests_per_unit: 5 }, shadow_mode: true },
    { key: 'to', rate_limit: { unit: 'hour', requests_per_unit: 10 }, quota_mode: true },
  ],
};
const browser = await openBrowser();

const settings = (address) => ({ 'tidegate.yaml': `xds:\n  server: ${address}\n  node: envoy-ratelimit\n  backoff: {initial: 100ms, max: 200ms}\n` });
const follow = (address) => startServer({ flags: ['--config', 'tidegate.yaml'], files: settings(address), rules: null });
const source = (page) => page.locator('section[aria-label="Source of the rules"]');
const rulesOf = async (server) => (await server.call('GET', '/v1/status')).body.rules;
const isInForce = (server, version) => until(`version ${version} is in force`, async () => (await rulesOf(server)).server_version === version, LONG);
const check = (server, user) => server.call('POST', '/v1/check', { attributes: requestOf(DOMAIN, user) });
const idOf = async (server, stat) => (await server.call('GET', '/v1/rules')).body.rules.find((rule) => rule.stat === stat).id;

/** A server that follows a management server, which has sent these domains as version 41. */
async function followed(domains = [routesOf(DOMAIN, 3), MESSAGING]) {
  const management = await startManagement();
  management.send('41', domains);
  const server = await follow(management.address);
  await isInForce(server, '41');
  return { management, server };
}

/** Waits until the source says this. */
const says = (page, text) => until(`the source says ${text}`, async () => text.test(await source(page).innerText()), LONG);
/** A colour of the page, as the browser writes it. */
const colour = (page, name) => page.evaluate((property) => {
  const probe = document.body.appendChild(document.createElement('i'));
  probe.style.color = `var(${property})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}, name);
const isRed = async (page) => (await source(page).evaluate((element) => getComputedStyle(element).backgroundColor)) === await colour(page, '--bad-ground');

const failures = await runTests('sources', {
  async 'rules of a management server are listed by domain and path, below their source, version and age'() {
    const { management, server } = await followed();
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules');
    await says(page, /connected\s+Rules of the management server 127\.0\.0\.1:\d+, version 41, received .* ago \(.*\), node envoy-ratelimit/);
    assert.ok(!await isRed(page));
    const age = () => source(page).locator('b').last().innerText();
    const first = await age();
    await until('the age grows', async () => (await age()) !== first);
    const groups = page.locator('tr.group');
    assert.deepEqual((await groups.allInnerTexts()).sort(), [`${DOMAIN} 3 rules, 0 denied`, 'messaging 2 rules, 0 denied']);
    const rules = (await page.locator('.listing tbody a').allInnerTexts()).sort();
    assert.equal(rules[0], PATH);
    assert.deepEqual(rules.slice(3), ['messaging.message_type_marketing', 'messaging.to']);
    await page.fill('#rule-search', 'WEB-1 gw');
    await until('one is found', async () => (await page.locator('.listing tbody a').count()) === 1);
    assert.match(await page.locator('main').innerText(), /1 of 5 found/);
    await page.locator('.listing tbody a').click();
    await page.waitForSelector('pre.code');
    await page.goBack();
    await page.waitForSelector('#rule-search');
    assert.equal(await page.inputValue('#rule-search'), 'WEB-1 gw', 'the search is kept');
    await page.fill('#rule-search', 'nothing-like-it');
    await page.waitForSelector('.empty:has-text("No rule has this")');
    await finish();
    await management.stop();
    await server.stop();
  },

  async 'what cannot be changed here says where it can be, and nothing is sent'() {
    const { management, server } = await followed();
    const id = await idOf(server, PATH);
    management.send('42', [routesOf(DOMAIN, 2), MESSAGING]);
    await isInForce(server, '42');
    const { page, seen, signIn, show, finish } = await openPage(browser, server);
    await signIn(server.token);
    const reason = `These rules come from the management server ${management.address}; change them there.`;
    for (const [route, label] of [['#/', 'Add a rule'], ['#/rules', 'Add a rule'], [`#/rules/${id}`, 'Edit'], ['#/changes', 'Roll back to this…']]) {
      await show(route);
      const button = page.locator(`main button:text-is("${label}")`).first();
      await button.waitFor();
      assert.equal(await button.getAttribute('aria-disabled'), 'true', label);
      await button.click({ force: true });
      await page.waitForSelector(`dialog:has-text("${reason}")`);
      await page.keyboard.press('Escape');
    }
    assert.match(await page.locator('.timeline').innerText(), new RegExp(`by xds:${management.address}`));
    for (const route of ['#/add-rule', `#/rules/${id}/edit`]) {
      await show(route);
      await page.waitForSelector(`.notice:has-text("${reason}")`);
      assert.equal(await page.locator('button.first').count(), 0, route);
      assert.equal(await page.locator('.problems li').count(), 0, route);
    }
    assert.ok(!seen.calls.some((call) => /^(PUT|DELETE|POST \/v1\/rules$)/.test(call)));
    await finish();
    await management.stop();
    await server.stop();
  },

  async 'one rule is shown as its descriptor, and a denied client of it is explained and reset'() {
    const { management, server } = await followed();
    for (let time = 0; time < 5; time += 1) await check(server, 'alice');
    await check(server, 'bob');
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, `#/rules/${await idOf(server, PATH)}`);
    await page.waitForSelector('pre.code');
    assert.equal(await page.locator('h1').innerText(), PATH);
    const rule = await page.locator('section[aria-label="Rule"]').innerText();
    assert.match(rule, /Domain\s+infra\/gw\/http\s+Entries/);
    assert.match(rule, /rule-0-match-0 any value, each counted by itself/);
    assert.match(rule, /Worst case\s+3 in each hour/);
    assert.match(rule, /- key: rule-0-match-0\n\s+rate_limit:\n\s+unit: hour\n\s+requests_per_unit: 3/);
    await page.locator('section[aria-label="Top clients"] a:has-text("alice")').click();
    await page.waitForSelector('.verdict.bad');
    assert.match(await page.locator('h1').innerText(), /Client alice/);
    assert.match(await page.locator('.verdict').innerText(), /by infra\/gw\/http\.httproute\/infra\/web-0\/rule\/0\/match\/0\/\*\.rule-0-match-0/);
    const fields = await page.locator('.attributes input').evaluateAll((inputs) => inputs.map((input) => input.value));
    assert.deepEqual(fields, Object.entries(requestOf(DOMAIN, 'alice')).flat(), 'the entries in their order');
    assert.equal((await check(server, 'alice')).status, 429);
    await page.locator('.verdict button:has-text("Reset counters")').click();
    await page.locator('dialog button:text-is("Reset")').click();
    await page.waitForSelector('#messages .notice.good:has-text("Reset")');
    assert.equal((await check(server, 'alice')).status, 200);
    assert.equal((await check(server, 'bob')).body.remaining, 1, 'another client keeps what it has used');
    await finish();
    await management.stop();
    await server.stop();
  },

  async 'a denied client of a descriptor gets another limit, by the values that the descriptor leaves open'() {
    const perHour = { unit: 'hour', requests_per_unit: 1 };
    const shop = { domain: 'shop', descriptors: [{ key: 'route', descriptors: [{ key: 'user', rate_limit: perHour }, { key: 'api_key', rate_limit: perHour }] }, { key: 'plan', value: 'free', rate_limit: perHour }] };
    const { management, server } = await followed([shop]);
    const { page, signIn, show, finish } = await openPage(browser, server);
    await signIn(server.token);
    for (const [stat, attributes, shown, expected] of [
      ['shop.route.user', { route: '/v1/a%b', user: 'alice' }, 'alice', /^%2Fv1%2Fa%25b\/alice$/],
      ['shop.route.api_key', { route: '/v1', api_key: 'sk_live_51Hc8T9uWxYzAbCdEfGh' }, 'sk_l…', /^%2Fv1\/sk_l…[0-9a-f]{12}$/],
      ['shop.plan_free', { plan: 'free' }, 'free', /^free$/],
    ]) {
      const allowed = async () => (await server.call('POST', '/v1/check', { attributes: { domain: 'shop', ...attributes } })).status === 200;
      for (let time = 0; time < 3; time += 1) await allowed();
      await show(`#/rules/${await idOf(server, stat)}`);
      await page.locator(`section[aria-label="Top clients"] a:has-text("${shown}")`).first().click();
      await page.waitForSelector('.verdict.bad');
      await page.locator('.verdict button:text-is("Override…")').click();
      assert.match(await page.inputValue('#o-key'), expected);
      await page.fill('#o-limit', '60000/hour');
      await page.locator('dialog button[type=submit]').click();
      await page.waitForSelector('.explained:has-text("from a temporary override")');
      await page.waitForSelector('.verdict.good');
      assert.ok(await allowed(), stat);
      await page.locator('.explained button:has-text("Remove")').waitFor();
      await show('#/overrides');
      await page.locator('main tbody th a').click();
      await page.waitForSelector('.explained:has-text("from a temporary override")');
      await page.locator('.explained button:has-text("Remove")').click();
      await page.locator('dialog button:text-is("Remove")').click();
      await page.waitForSelector('.verdict.bad');
      assert.ok(!await allowed(), stat);
    }
    await finish();
    await management.stop();
    await server.stop();
  },

  async 'a client that was not seen is explained by an example, with the entries in their order'() {
    const { management, server } = await followed();
    const query = new URLSearchParams({ rule: await idOf(server, PATH), 'a.rule-0-match-0': 'carol' });
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, `#/client?${query}`);
    await page.waitForSelector('.verdict.good');
    const fields = await page.locator('.attributes input').evaluateAll((inputs) => inputs.map((input) => input.value));
    assert.deepEqual(fields, Object.entries(requestOf(DOMAIN, 'carol')).flat());
    await finish(failedWith(422));
    await management.stop();
    await server.stop();
  },

  async 'a refused response is red and says why, until a good one comes'() {
    const { management, server } = await followed();
    const { page, signIn, show, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules');
    await says(page, /connected/);
    management.send('42', [{ domain: 'edge', descriptors: [{ key: 'a', rate_limit: { requests_per_unit: 3 } }] }]);
    await says(page, /The last change of the rules was refused; the rules in force stay\s+resource edge, field descriptors\[0\]\.rate_limit: the key unit is missing[^]*refused\s+Rules of .* version 41,/);
    assert.ok(await isRed(page));
    assert.equal(await page.locator('[role=alert]').count(), 1);
    await show('#/');
    await says(page, /was refused/);
    await show('#/rules');
    await says(page, /was refused/);
    management.send('43', [MESSAGING]);
    await says(page, /connected[^]*version 43/);
    assert.ok(!await isRed(page));
    await until('the new rules are listed', async () => (await page.locator('.listing tbody a').count()) === 2);
    await show('#/');
    await page.waitForSelector('.tiles');
    await until('the overview has nothing to say', async () => (await source(page).isHidden()));
    await finish();
    await management.stop();
    await server.stop();
  },

  async 'a management server that is away is red, also after a restart with the last good rules, until it is back'() {
    const { management, server } = await followed();
    let opened = await openPage(browser, server);
    await opened.signIn(server.token, '#/rules');
    await says(opened.page, /connected/);
    await management.stop();
    await says(opened.page, /The management server is away; the rules in force stay\s+\S.*\s+away\s+Rules of .*, version 41, received .* ago/);
    assert.ok(await isRed(opened.page));
    await opened.finish();

    await until('the rules are kept', () => access(join(server.folder, 'data/xds-last-good')).then(() => true, () => false), LONG);
    await server.restart();
    await until('the server has tried', async () => (await rulesOf(server)).failure, LONG);
    opened = await openPage(browser, server, { scheme: 'dark' });
    await opened.signIn(server.token, '#/rules');
    await says(opened.page, /The management server is away; the last good rules are in force[^]*version 41, received .* ago/);
    assert.ok(await isRed(opened.page));
    assert.equal(await opened.page.locator('.listing tbody a').count(), 5);
    const back = await startManagement(management.address);
    back.send('1', [MESSAGING]);
    await says(opened.page, /connected[^]*version 1,/);
    await opened.finish();
    await back.stop();
    await server.stop();
  },

  async 'without any rules the page says that calls fail, and shows the rules when they come'() {
    const management = await startManagement();
    await management.stop();
    const server = await follow(management.address);
    await until('the server has tried', async () => (await rulesOf(server)).failure, LONG);
    const { page, signIn, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules');
    await says(page, /The management server is away; no rules are known, and calls fail[^]*nothing received yet/);
    assert.ok(await isRed(page));
    await page.waitForSelector('.empty:has-text("No rules are known yet")');
    const back = await startManagement(management.address);
    back.send('1', [MESSAGING]);
    await until('the rules are listed', async () => (await page.locator('.listing tbody a').count()) === 2, LONG);
    await finish(/status of 503/);
    await back.stop();
    await server.stop();
  },

  async 'rules of a folder name it, and a file that is refused is red'() {
    const file = (limit) => `domain: messaging\ndescriptors:\n  - key: to\n    rate_limit: {unit: hour, requests_per_unit: ${limit}}\n`;
    const server = await startServer({ flags: ['--rules', 'config'], files: { 'config/messaging.yaml': file(10) }, rules: null });
    const { page, signIn, show, finish } = await openPage(browser, server);
    await signIn(server.token, '#/rules');
    await says(page, /^Rules of the folder \S+\/config, version 1, read again when it changes\.$/);
    assert.equal(await page.locator('.listing tbody a').innerText(), 'messaging.to');
    await page.locator('button:text-is("Add a rule")').click({ force: true });
    await page.waitForSelector('dialog:has-text("The rules come from the folder")');
    await page.keyboard.press('Escape');
    await writeFile(join(server.folder, 'next'), file('many'));
    await rename(join(server.folder, 'next'), join(server.folder, 'config/messaging.yaml'));
    await says(page, /The last change of the rules was refused; the rules in force stay[^]*messaging\.yaml/);
    assert.ok(await isRed(page));
    await writeFile(join(server.folder, 'next'), file(20));
    await rename(join(server.folder, 'next'), join(server.folder, 'config/messaging.yaml'));
    await says(page, /version 2, read again/);
    await until('the limit is the new one', async () => /20\/hour/.test(await page.locator('.listing').innerText()));
    await show('#/changes');
    await says(page, /^Rules of the folder/);
    await finish();
    await server.stop();
  },

  async 'thousands of rules stay usable'() {
    const domains = Array.from({ length: 25 }, (_, index) => routesOf(`prod/gateway-${index}/https`, 200));
    const { management, server } = await followed(domains);
    for (let time = 0; time < 5; time += 1) await server.call('POST', '/v1/check', { attributes: requestOf('prod/gateway-7/https', 'alice') });
    const { page, seen, signIn, show, finish } = await openPage(browser, server);
    page.setDefaultTimeout(LONG);
    await signIn(server.token, '#/rules');
    const rows = page.locator('.listing tbody a');
    await rows.first().waitFor();
    assert.match(await page.locator('.page-head').innerText(), /5,000 rules/);
    await until('what denies is first', async () => /^prod\/gateway-7\/https 200 rules, 2 denied/.test(await page.locator('tr.group').first().innerText()), LONG);
    assert.equal(await rows.count(), 200, '10 of each of 20 domains');
    await page.locator('[data-more^="rows"]').first().click();
    await until('200 more of the domain', async () => (await rows.count()) === 390);
    await page.locator('[data-more="groups"]').focus();
    await page.keyboard.press('Enter');
    await until('all domains', async () => (await page.locator('tr.group').count()) === 25);
    await page.fill('#rule-search', 'gateway-24 web-199');
    await until('one is found', async () => (await rows.count()) === 1, LONG);
    const reads = () => seen.calls.filter((call) => call === 'GET /v1/rules').length;
    assert.equal(reads(), 1);
    for (const route of ['#/changes', '#/client', '#/rules']) {
      await show(route);
      await page.waitForSelector('h1');
    }
    assert.equal(reads(), 1, 'rules are read again only when they have changed');
    await finish();
    await management.stop();
    await server.stop();
  },

  async 'the list and the source are accessible in each state, on a phone and in the dark'() {
    const { management, server } = await followed();
    for (let time = 0; time < 5; time += 1) await check(server, 'alice');
    const id = await idOf(server, PATH);
    const axe = await readAxe();
    const client = `#/client?${new URLSearchParams({ rule: id, 'a.rule-0-match-0': 'alice' })}`;
    const found = [];
    async function look(state) {
      for (const [width, scheme] of [[1440, 'light'], [1440, 'dark'], [360, 'light'], [360, 'dark']]) {
        const { page, signIn, show, finish } = await openPage(browser, server, { width, scheme, bypassCSP: true });
        await signIn(server.token);
        for (const [route, ready] of [['#/rules', '.listing tbody a'], [`#/rules/${id}`, 'pre.code'], [client, '.verdict'], ['#/', '.tiles'], ['#/changes', '.timeline']]) {
          await show(route);
          await page.locator(ready).first().waitFor();
          await page.evaluate(axe);
          const { violations } = await page.evaluate(() => window.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
          found.push(...violations.flatMap(({ id: rule, nodes }) => nodes.map((node) => `${state} ${width} ${scheme} ${route} ${rule}: ${node.target} ${node.any?.[0]?.message ?? ''}`)));
          const tooWide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          if (tooWide > 0) found.push(`${state} ${width} ${route} is ${tooWide} px too wide`);
        }
        await finish();
      }
    }
    await look('connected');
    management.send('42', [{ domain: 'edge', descriptors: [{ key: 'a', rate_limit: { requests_per_unit: 3 } }] }]);
    await until('it is refused', async () => (await rulesOf(server)).problem, LONG);
    await management.stop();
    await until('it is away', async () => (await rulesOf(server)).failure, LONG);
    await look('away');
    assert.deepEqual(found, []);
    await server.stop();
  },
});

await browser.close();
process.exitCode = failures > 0 ? 1 : 0;
