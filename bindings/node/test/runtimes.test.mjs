// Programs of the guide in Bun, Deno and workerd, the runtime of Cloudflare Workers. Not in the short form: they are large.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { assertLimits, program } from './guide.mjs'
import { freePort, start, startRedis, startTidegate } from './servers.mjs'
import { IS_SHORT } from './settings.mjs'

const skip = IS_SHORT

/** A program of @oven, @deno or @cloudflare, whatever this machine is. */
function runtime(scope, name, ...path) {
  const folder = join(process.env.TIDEGATE_ROOT, 'target/tools/runtimes/node_modules', scope)
  const found = readdirSync(folder).find((entry) => entry.startsWith(name))
  return join(folder, found, ...path)
}

const bun = () => runtime('@oven', 'bun-linux', 'bin/bun')
const deno = () => runtime('@deno', 'linux', 'deno')
const workerd = () => runtime('@cloudflare', 'workerd-linux', 'bin/workerd')

function written(files) {
  const folder = mkdtempSync(join(import.meta.dirname, 'runtime-'))
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
  return folder
}

const RUNTIMES = [
  ['bun', (file) => [bun(), [file]], 'Bun.env.PORT'],
  ['deno', (file) => [deno(), ['run', '--quiet', '--allow-all', '--node-modules-dir=manual', file]], 'Deno.env.get("PORT")'],
]

for (const [name, command, port] of RUNTIMES) {
  const programs = {
    'a limiter': program('A limiter').replace('using permit', 'const permit'),
    express: program('Express', { 3000: `${port}, "127.0.0.1"` }),
    fastify: program('Fastify', { 3000: `Number(${port})` }),
  }
  test(`${name}: a limiter`, { skip }, () => {
    const folder = written({ 'program.mjs': programs['a limiter'] })
    const [file, words] = command(join(folder, 'program.mjs'))
    assert.equal(execFileSync(file, words, { encoding: 'utf8' }), '')
  })
  for (const title of ['express', 'fastify']) {
    test(`${name}: ${title}`, { skip }, async (t) => {
      const folder = written({ 'program.mjs': programs[title] })
      const [file, words] = command(join(folder, 'program.mjs'))
      const { port } = await start(t, name, file, () => words, { env: (port) => ({ ...process.env, PORT: String(port) }) })
      await assertLimits(`http://127.0.0.1:${port}`)
    })
  }
}

for (const [name, command] of RUNTIMES) {
  test(`${name}: over Redis, and by a server`, { skip }, async (t) => {
    const redis = await startRedis(t)
    const address = await startTidegate(t, 'rules: [{id: per-user, per: [user_id], limit: 100/minute}]\n')
    const folder = written({
      'redis.mjs': program('Limits that processes share', { 6379: String(redis.port), "name: 'per-user'": "name: 'per-user', timeoutMs: 5000" }),
      'server.mjs': program('A server', { "'http://127.0.0.1:8080'": `'${address}', { timeoutMs: 5000 }` }),
      'refused.mjs': `import { Client } from 'tidegate'
await new Client('http://127.0.0.1:${await freePort()}', { timeoutMs: 5000 }).check({}).catch((error) => console.log(error.name, error.charged))`,
    })
    const printed = (program) => {
      const [file, words] = command(join(folder, program))
      return execFileSync(file, words, { encoding: 'utf8' })
    }
    assert.deepEqual([printed('redis.mjs'), printed('redis.mjs')], ['true 99\n', 'true 98\n'])
    assert.equal(printed('server.mjs'), 'true 99\n')
    assert.equal(printed('refused.mjs'), 'StoreError false\n')
  })
}

const HONO = 'Hono, Bun, Deno and Workers'

test('bun: hono', { skip }, async (t) => {
  const folder = written({ 'app.js': program(HONO) })
  const { port } = await start(t, 'bun', bun(), () => ['run', join(folder, 'app.js')], { env: (port) => ({ ...process.env, BUN_PORT: String(port) }) })
  await assertLimits(`http://127.0.0.1:${port}`)
})

test('deno: hono', { skip }, async (t) => {
  const folder = written({ 'app.js': program(HONO) })
  const { port } = await start(t, 'deno', deno(), (port) => ['serve', '--quiet', '--allow-all', '--node-modules-dir=manual', '--host', '127.0.0.1', '--port', String(port), join(folder, 'app.js')])
  await assertLimits(`http://127.0.0.1:${port}`)
})

test('workerd: hono', { skip }, async (t) => {
  const folder = written({
    'app.js': program(HONO),
    'worker.capnp': `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (
    modules = [(name = "worker.js", esModule = embed "worker.js"), (name = "tidegate.wasm", wasm = embed "tidegate.wasm")],
    compatibilityDate = "2026-07-01",
  ))],
  sockets = [(name = "http", address = "127.0.0.1:8080", http = (), service = "main")],
);
`,
  })
  // As tools for Workers do: modules are joined by the condition \`workerd\`, and WebAssembly is compiled when it is deployed.
  const bundled = execFileSync(bun(), ['build', join(folder, 'app.js'), '--target', 'browser', '--format', 'esm', '--conditions', 'workerd', '--external', '*.wasm'], { encoding: 'utf8' })
  writeFileSync(join(folder, 'worker.js'), bundled)
  copyFileSync(join(import.meta.dirname, 'node_modules/tidegate/dist/tidegate.wasm'), join(folder, 'tidegate.wasm'))
  const { port } = await start(t, 'workerd', workerd(), (port) => ['serve', '--socket-addr', `http=127.0.0.1:${port}`, join(folder, 'worker.capnp')])
  await assertLimits(`http://127.0.0.1:${port}`)
})
