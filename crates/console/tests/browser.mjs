// Chromium, and a page that remembers everything that must not happen.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

const require = createRequire(join(process.env.BROWSER_TOOLS ?? 'target/tools/browser', 'package.json'));
const { chromium } = require('playwright-core');

// For a busy machine; nothing waits for so long on another.
const PATIENCE = 60_000;

export function openBrowser() {
  const isRoot = process.getuid?.() === 0;
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: isRoot ? ['--no-sandbox'] : [] });
}

const TYPES = { html: 'text/html', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };

/** Serves the files of a folder in place of the embedded ones, to try changes without a build. */
async function serveFrom(context, server, folder) {
  const policy = (await fetch(`${server.url}/console/`)).headers.get('content-security-policy');
  await context.route(`${server.url}/console/**`, async (route) => {
    const path = new URL(route.request().url()).pathname.replace('/console/', '') || 'index.html';
    const body = await readFile(join(folder, path.startsWith('vendor/') ? path : join('page', path)));
    await route.fulfill({ body, contentType: TYPES[path.split('.').pop()], headers: { 'content-security-policy': policy } });
  });
}

/**
 * A page on a server. `finish()` asserts that nothing left the server's origin, that no policy was violated, and
 * that nothing failed but what `expected` matches.
 */
export async function openPage(browser, server, { width = 1440, height = 900, scale = 1, scheme = 'light', bypassCSP = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, deviceScaleFactor: scale, colorScheme: scheme, bypassCSP, reducedMotion: 'no-preference' });
  context.setDefaultTimeout(PATIENCE);
  if (process.env.CONSOLE_FILES) await serveFrom(context, server, process.env.CONSOLE_FILES);
  const page = await context.newPage();
  const seen = { errors: [], outside: [], calls: [], bodies: [] };
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`));
  });
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) seen.errors.push(message.text()); });
  page.on('pageerror', (error) => seen.errors.push(String(error)));
  page.on('dialog', (dialog) => { seen.errors.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => {
    if (!request.url().startsWith(`${server.url}/`)) seen.outside.push(request.url());
    seen.calls.push(`${request.method()} ${new URL(request.url()).pathname}`);
  });
  page.on('response', async (response) => {
    const isStream = response.url().endsWith('/stream');
    if (response.url().includes('/v1/') && !isStream) seen.bodies.push(await response.text().catch(() => ''));
  });
  return {
    page,
    seen,
    /** Signs in with a token, and shows a route. */
    async signIn(token, route = '#/') {
      await page.goto(`${server.url}/console/${route}`);
      await page.fill('#token', token);
      await page.keyboard.press('Enter');
      await page.waitForSelector('nav');
    },
    async show(route) {
      await page.evaluate((hash) => { location.hash = hash; }, route);
    },
    async finish(expected = /^$/) {
      const errors = seen.errors.filter((text) => !expected.test(text));
      assert.deepEqual(errors, [], 'console errors and violations of the policy');
      assert.deepEqual(seen.outside, [], 'requests to other origins');
      await context.close();
    },
  };
}

/** What a failed call leaves in the console of Chromium. */
export const failedWith = (...statuses) => new RegExp(`^Failed to load resource: .*status of (${statuses.join('|')})`);

/** Waits until `read()` is true. */
export async function until(what, read, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    if (await read()) return;
    if (Date.now() > end) assert.fail(`not within ${patience / 1000} s: ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
}

export async function readAxe() {
  return readFile(require.resolve('axe-core/axe.min.js'), 'utf8');
}

/** Runs tests one after the other, and ends the process with the result. */
export async function runTests(name, tests) {
  const started = Date.now();
  let failures = 0;
  for (const [what, test] of Object.entries(tests)) {
    try {
      await test();
      console.log(`ok      ${name}: ${what}`);
    } catch (error) {
      failures += 1;
      console.log(`FAILED  ${name}: ${what}\n${error.stack}`);
    }
  }
  console.log(`${name}: ${((Date.now() - started) / 1000).toFixed(1)} s`);
  return failures;
}
