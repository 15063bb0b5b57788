// The tests of @fastify/rate-limit itself, which its package has, with the store of Tidegate in place of the built-in one. The packages
// of the other frameworks have no tests. Not in the short form.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { IS_SHORT } from './settings.mjs'

/** What is refused: `continueExceeding` and `exponentialBackoff` let denied requests prolong the window. */
const REFUSED = [
  'Exponential Backoff',
  'Global Exponential Backoff',
  'MAx safe Exponential Backoff',
  // Of the plugin, and of a route.
  'When continue exceeding is on (Local)',
  'When continue exceeding is on (Local)',
  'With { increment: false } and continueExceeding the peek mirrors the active window',
  'With { increment: false } and exponentialBackoff the peek reports the base window without escalating it',
  "issue #207 - when continueExceeding is true and the store is local then it should reset the rate-limit",
  "issue #284 - don't set the reply code automatically",
]
/** Tests of the store for Redis. */
const WITHOUT_STORE = ['redis-rate-limit.test.js']

/** The plugin, with another store where it would make its own. */
const EXCHANGED = `
const plugin = require('@fastify/rate-limit')
const { tidegateStore } = require('tidegate/fastify')
function exchanged (fastify, settings) {
  return plugin(fastify, settings.store || settings.redis ? settings : { ...settings, store: tidegateStore() })
}
for (const key of Reflect.ownKeys(plugin)) {
  if (!['length', 'name', 'prototype', 'default'].includes(key)) exchanged[key] = plugin[key]
}
module.exports = exchanged
module.exports.default = exchanged
`

/** The names of tests that passed, and of those that failed. */
async function results(files) {
  const child = spawn(process.execPath, ['--test', '--test-reporter=tap', ...files], { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, NODE_TEST_CONTEXT: undefined } })
  let printed = ''
  child.stdout.on('data', (part) => { printed += part })
  await new Promise((resolve) => child.once('close', resolve))
  const named = (pattern) => [...printed.matchAll(pattern)].map(([, name]) => name.replaceAll('\\', '')).filter((name) => !name.endsWith('.test.js')).sort()
  return { passed: named(/^ *ok \d+ - (.*)$/gm), failed: named(/^ *not ok \d+ - (.*)$/gm), printed }
}

test('@fastify/rate-limit', { skip: IS_SHORT }, async () => {
  const folder = mkdtempSync(join(import.meta.dirname, 'suite-'))
  const tests = join(dirname(createRequire(import.meta.url).resolve('@fastify/rate-limit')), 'test')
  cpSync(tests, join(folder, 'test'), { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{ "type": "commonjs" }')
  writeFileSync(join(folder, 'index.js'), EXCHANGED)
  const files = readdirSync(join(folder, 'test'), { recursive: true }).filter((name) => name.endsWith('.test.js') && !WITHOUT_STORE.includes(name))
  const { passed, failed, printed } = await results(files.map((name) => join(folder, 'test', name)))
  assert.deepEqual(failed, [...REFUSED].sort(), printed)
  assert.ok(passed.length > 80, printed)
})
