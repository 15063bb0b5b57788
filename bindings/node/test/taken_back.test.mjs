// Requests that the frameworks take back: failed or successful ones, by `skipFailedRequests` and `skipSuccessfulRequests`. They take a
// denied request back as any other, although it has charged nothing.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import express from 'express'
import { rateLimit } from 'express-rate-limit'
import { Hono } from 'hono'
import { rateLimiter } from 'hono-rate-limiter'
import { Redis } from 'ioredis'
import { Limiter, RedisLimiter } from 'tidegate'
import { TidegateStore } from 'tidegate/express'
import { startRedis } from './servers.mjs'

const LIMIT = { windowMs: 3_600_000, limit: 2 }
const FAILED = { skipFailedRequests: true }
const SUCCESSFUL = { skipSuccessfulRequests: true }
const BOTH = { ...FAILED, ...SUCCESSFUL }
const ALGORITHMS = ['token_bucket', 'leaky_bucket', 'sliding_window_log', 'sliding_window_counter', 'sliding_window_slots']

/** Remembers when all that a store takes back is taken back. */
function watched(store) {
  const pending = []
  const { decrement } = store
  store.decrement = (key) => {
    const taken = Promise.resolve(decrement.call(store, key))
    pending.push(taken)
    return taken
  }
  return { store, settled: () => Promise.all(pending.splice(0)) }
}

async function withExpress(t, options, made) {
  const { store, settled } = watched(made)
  const app = express()
  const finished = []
  app.use((request, response, next) => {
    finished.push(once(response, 'finish'))
    next()
  })
  app.use(rateLimit({ ...LIMIT, ...options, store, keyGenerator: (request) => String(request.query.key ?? 'a') }))
  app.get('/', (request, response) => response.send('ok'))
  app.get('/fail', (request, response) => response.status(400).send('failed'))
  const server = app.listen(0, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
  return async (...paths) => {
    const answers = await Promise.all(paths.map(async (path) => {
      const answer = await fetch(`http://127.0.0.1:${server.address().port}${path}`)
      await answer.text()
      return answer.status
    }))
    await Promise.all(finished.splice(0))
    await new Promise((resolve) => setImmediate(resolve))
    await settled()
    return answers
  }
}

async function withHono(t, options, made) {
  const { store, settled } = watched(made)
  const app = new Hono()
  app.use(rateLimiter({ ...LIMIT, ...options, store, keyGenerator: (context) => context.req.query('key') ?? 'a' }))
  app.get('/', (context) => context.text('ok'))
  app.get('/fail', (context) => context.text('failed', 400))
  return async (...paths) => {
    const answers = await Promise.all(paths.map(async (path) => (await app.request(path)).status))
    await settled()
    return answers
  }
}

const times = (count, value) => Array(count).fill(value)

/** Plays requests one after another. */
async function inTurn(ask, ...paths) {
  const answers = []
  for (const path of paths) answers.push(...(await ask(path)))
  return answers
}

async function play(t, serve, make) {
  let ask = await serve(t, FAILED, make())
  assert.deepEqual(await inTurn(ask, ...times(8, '/')), [200, 200, ...times(6, 429)])
  assert.deepEqual(await inTurn(ask, ...times(4, '/?key=b')), [200, 200, 429, 429])
  ask = await serve(t, FAILED, make())
  assert.deepEqual(await inTurn(ask, '/', '/fail', '/fail', '/', '/', '/fail', '/'), [200, 400, 400, 200, 429, 429, 429])
  ask = await serve(t, SUCCESSFUL, make())
  assert.deepEqual(await inTurn(ask, ...times(3, '/'), ...times(5, '/fail'), '/'), [...times(3, 200), 400, 400, ...times(4, 429)])
  ask = await serve(t, BOTH, make())
  assert.deepEqual(await inTurn(ask, ...times(6, '/'), ...times(6, '/fail')), [...times(6, 200), ...times(6, 400)])
  // What one of them denies at the same time stays denied.
  ask = await serve(t, FAILED, make())
  const statuses = [await ask(...times(9, '/')), await ask(...times(9, '/'))].map((all) => all.filter((status) => status === 200).length)
  assert.deepEqual(statuses, [2, 0])
}

for (const [name, serve] of [['express', withExpress], ['hono', withHono]]) {
  for (const algorithm of ALGORITHMS) {
    test(`${name}: ${algorithm}`, (t) => play(t, serve, () => new TidegateStore({ algorithm })))
  }

  test(`${name}: a limiter in memory`, (t) => play(t, serve, () => new TidegateStore({ limiter: new Limiter('2/hour') })))

  test(`${name}: a limiter over Redis`, async (t) => {
    const { port } = await startRedis(t)
    const redis = new Redis(port, '127.0.0.1')
    t.after(() => redis.disconnect())
    let made = 0
    for (const algorithm of ['token_bucket', 'sliding_window_log']) {
      await play(t, serve, () => new TidegateStore({
        limiter: new RedisLimiter('2/hour', { sendCommand: (...args) => redis.call(...args), timeoutMs: 5000, name: `store ${made += 1}`, algorithm }),
      }))
    }
  })
}

test('what is not charged is known until its reset time, and no longer', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_700_000_000_000 })
  const store = new TidegateStore({ algorithm: 'token_bucket' })
  store.init({ windowMs: 60_000, limit: 2, ...SUCCESSFUL })
  const hits = (count) => Array.from({ length: count }, () => store.increment('a').totalHits)
  assert.deepEqual(hits(4), [1, 2, 3, 3])
  // express-rate-limit takes nothing back from then on, and never what has failed: the next charge is its own.
  t.mock.timers.tick(30_000)
  assert.deepEqual(hits(1), [2])
  store.decrement('a')
  assert.equal(store.get('a').totalHits, 1)
  assert.deepEqual(hits(3), [2, 3, 3])
  store.resetKey('a')
  t.mock.timers.tick(1)
  assert.deepEqual(hits(1), [1])
  store.decrement('a')
  assert.equal(store.get('a'), undefined)
})

test('a request that is admitted without the store has charged nothing', async () => {
  let isUp = true
  const limiter = new Limiter('2/hour')
  const failing = new RedisLimiter('2/hour', { sendCommand: async () => { throw new Error('connection lost') }, onStoreFailure: 'allow' })
  const check = limiter.check.bind(limiter)
  limiter.check = (key) => (isUp ? check(key) : failing.check(key))
  const store = new TidegateStore({ limiter })
  store.init({ ...LIMIT, ...FAILED })
  await store.increment('a')
  isUp = false
  await store.increment('a')
  await store.decrement('a')
  assert.equal(limiter.peek('a').remaining, 1)
})
