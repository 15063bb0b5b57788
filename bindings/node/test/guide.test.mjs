// The programs of the guide in Node, with the real frameworks, Redis and a server.

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { assertLimits, program } from './guide.mjs'
import { start, startRedis, startTidegate } from './servers.mjs'

/** A file next to the packages that its program imports. */
function written(name, code) {
  const folder = mkdtempSync(join(import.meta.dirname, 'guide-'))
  const file = join(folder, name)
  writeFileSync(file, code)
  return file
}

/** What a program prints. Node 20 has no `using`. */
function printed(code) {
  const file = written('program.mjs', code.replace('using permit', 'const permit'))
  return execFileSync(process.execPath, [file], { encoding: 'utf8' })
}

async function servesAndLimits(t, name, file) {
  const { port } = await start(t, name, process.execPath, () => [file], { env: (port) => ({ ...process.env, PORT: String(port) }) })
  await assertLimits(`http://127.0.0.1:${port}`)
}

test('a limiter', () => {
  assert.equal(printed(program('A limiter')), '')
})

test('express', async (t) => {
  await servesAndLimits(t, 'express', written('express.mjs', program('Express', { 3000: 'process.env.PORT, "127.0.0.1"' })))
})

test('fastify', async (t) => {
  await servesAndLimits(t, 'fastify', written('fastify.mjs', program('Fastify', { 3000: 'process.env.PORT' })))
})

test('nest', async (t) => {
  const file = written('nest.mts', program('Nest', { 3000: 'process.env.PORT!, "127.0.0.1"' }))
  const options = ['--experimentalDecorators', '--emitDecoratorMetadata', '--strict', '--target', 'es2022', '--module', 'nodenext', '--skipLibCheck', '--types', 'node', '--ignoreConfig']
  const compiled = spawnSync('tsc', [...options, file], { encoding: 'utf8' })
  assert.equal(compiled.status, 0, compiled.stdout + compiled.stderr)
  await servesAndLimits(t, 'nest', file.replace(/mts$/, 'mjs'))
})

test('hono', async (t) => {
  const code = program('Hono, Bun, Deno and Workers', { 'export default app': 'serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: "127.0.0.1" })' })
  await servesAndLimits(t, 'hono', written('hono.mjs', `import { serve } from '@hono/node-server'\n${code}`))
})

test('limits that processes share', async (t) => {
  const { port } = await startRedis(t)
  const code = program('Limits that processes share', { 6379: String(port), "name: 'per-user'": "name: 'per-user', timeoutMs: 5000" })
  assert.deepEqual([printed(code), printed(code)], ['true 99\n', 'true 98\n'])
})

test('a server', async (t) => {
  const address = await startTidegate(t, 'rules: [{id: per-user, per: [user_id], limit: 100/minute}]\n')
  assert.equal(printed(program('A server', { "'http://127.0.0.1:8080'": `'${address}', { timeoutMs: 5000 }` })), 'true 99\n')
})
