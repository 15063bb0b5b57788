// The stores of other libraries, in the real frameworks.

import 'reflect-metadata'
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import fastifyRateLimit from '@fastify/rate-limit'
import express from 'express'
import { rateLimit } from 'express-rate-limit'
import Fastify from 'fastify'
import { Hono } from 'hono'
import { rateLimiter } from 'hono-rate-limiter'
import { LimitError, Limiter } from 'tidegate'
import { TidegateStore } from 'tidegate/express'
import { tidegateStore } from 'tidegate/fastify'
import { TidegateStore as HonoStore } from 'tidegate/hono'
import { TidegateThrottlerStorage } from 'tidegate/nestjs'

test('express: denied beyond the limit, with a true time to retry', async (t) => {
  for (const [algorithm, retryAfter] of [['fixed_window', '60'], ['token_bucket', '30']]) {
    const app = express()
    app.use(rateLimit({ windowMs: 60_000, limit: 2, standardHeaders: 'draft-7', legacyHeaders: false, store: new TidegateStore({ algorithm }) }))
    app.get('/', (request, response) => response.send('ok'))
    const server = app.listen(0, '127.0.0.1')
    t.after(() => server.close())
    await once(server, 'listening')
    const answers = []
    for (let turn = 0; turn < 3; turn++) answers.push(await fetch(`http://127.0.0.1:${server.address().port}/`))
    assert.deepEqual(answers.map((answer) => answer.status), [200, 200, 429])
    assert.equal(answers[2].headers.get('retry-after'), retryAfter)
  }
})

test('express: what is taken back, reset, and refused', () => {
  for (const algorithm of ['fixed_window', 'sliding_window_log', 'token_bucket']) {
    const store = new TidegateStore({ algorithm })
    store.init({ windowMs: 60_000, limit: 5, skipFailedRequests: true })
    assert.equal(store.localKeys, true)
    assert.deepEqual([store.get('a'), store.increment('a').totalHits, store.increment('a').totalHits], [undefined, 1, 2])
    store.decrement('a')
    assert.equal(store.increment('a').totalHits, 2)
    assert.ok(store.get('a').resetTime > new Date())
    store.resetKey('a')
    assert.equal(store.increment('a').totalHits, 1)
    store.resetAll()
    assert.equal(store.increment('a').totalHits, 1)
    store.shutdown()
  }
  assert.throws(() => new TidegateStore({ algorithm: 'token_bucket' }).init({ windowMs: 1000, limit: () => 5 }), LimitError)
  assert.throws(() => new TidegateStore({ algorithm: 'concurrency' }), LimitError)
})

/** What a call of a store answers, by callback. */
function answer(call) {
  return new Promise((resolve, reject) => call((error, usage) => (error ? reject(error) : resolve(usage))))
}

test('a missing key is refused, and does not become one that clients share', async () => {
  const limited = () => ({ limiter: new Limiter('5/hour') })
  for (const key of [undefined, null, 7, 7n, {}, ['a']]) {
    for (const options of [{}, { algorithm: 'token_bucket' }, limited()]) {
      for (const prefix of ['', 'api:']) {
        const store = new TidegateStore({ ...options, prefix })
        assert.throws(() => store.increment(key), TypeError)
        store.init({ windowMs: 60_000, limit: 5 })
        for (const method of ['increment', 'decrement', 'get', 'resetKey']) assert.throws(() => store[method](key), TypeError, method)
        store.shutdown()
      }
      for (const name of ['default', 'burst']) {
        const storage = new TidegateThrottlerStorage(options)
        await assert.rejects(storage.increment(key, 60_000, 5, 60_000, name), TypeError)
        storage.onApplicationShutdown()
      }
      if (key === 7) continue
      const plugin = new (tidegateStore(options))({})
      for (const store of [plugin, plugin.child({ routeInfo: { method: 'GET', url: '/' } })]) {
        for (const method of ['incr', 'read']) await assert.rejects(answer((callback) => store[method](key, callback, 60_000, 5)), TypeError)
      }
    }
  }
  // A `keyGenerator` of Fastify may return numbers.
  const plugin = new (tidegateStore())({})
  const count = async (key) => (await answer((callback) => plugin.incr(key, callback, 60_000, 5))).current
  assert.deepEqual([await count(7), await count('7')], [1, 2])
})

test('a lone surrogate is replaced, whatever counts', () => {
  for (const algorithm of ['fixed_window', 'token_bucket']) {
    const store = new TidegateStore({ algorithm })
    store.init({ windowMs: 60_000, limit: 5, skipFailedRequests: true })
    assert.deepEqual(['a\ud800', 'a\ufffd', 'a\udfff'].map((key) => store.increment(key).totalHits), [1, 2, 3])
    assert.equal(store.get('a\ud801').totalHits, 3)
    store.decrement('a\ud800')
    assert.equal(store.get('a\ufffd').totalHits, 2)
    store.resetKey('a\ud800')
    assert.equal(store.get('a\ufffd'), undefined)
    store.shutdown()
  }
})

test('the largest limits are counted, and no limit is an error', async () => {
  for (const limit of [Infinity, 2e9, 1e9]) {
    const storage = new TidegateThrottlerStorage()
    assert.deepEqual(await storage.increment('a', 60_000, limit, 60_000, 'default'), { totalHits: 1, timeToExpire: 60, isBlocked: false, timeToBlockExpire: 0 })
    storage.onApplicationShutdown()
    const store = new TidegateStore({ algorithm: 'token_bucket' })
    store.init({ windowMs: 60_000, limit })
    assert.equal(store.increment('a').totalHits, 1)
    store.shutdown()
  }
})

test('fastify: with a limiter each route counts by itself, as in Redis by the plugin, and a read is of the key alone', async () => {
  const limiter = new Limiter('3/hour')
  const app = Fastify()
  await app.register(fastifyRateLimit, { max: 3, timeWindow: '1 hour', keyGenerator: () => 'a', store: tidegateStore({ limiter }) })
  app.get('/', async () => 'ok')
  app.get('/other', { config: { rateLimit: { max: 3 } } }, async () => 'ok')
  const remaining = async (path) => Number((await app.inject(path)).headers['x-ratelimit-remaining'])
  assert.deepEqual([await remaining('/'), await remaining('/other'), await remaining('/other')], [2, 2, 1])
  assert.deepEqual(['a', 'GET/other-a'].map((key) => limiter.peek(key).remaining), [2, 1])
  await app.close()
  const store = new (tidegateStore({ limiter }))({})
  const read = (key) => answer((callback) => store.read(key, callback, 3_600_000, 3))
  assert.deepEqual(await read('unknown'), { current: 0, ttl: 0 })
  assert.equal((await read('a')).current, 1)
})

test('nest: the end of a block does not reset a limiter, which others may share', async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_700_000_000_000 })
  const limiter = new Limiter('2/hour')
  const storage = new TidegateThrottlerStorage({ limiter })
  const isBlocked = async () => (await storage.increment('a', 3_600_000, 2, 5_000, 'default')).isBlocked
  assert.deepEqual([await isBlocked(), await isBlocked(), await isBlocked()], [false, false, true])
  t.mock.timers.tick(5_000)
  assert.deepEqual([await isBlocked(), limiter.peek('a').allowed], [true, false])
  storage.onApplicationShutdown()
})

test('fastify: limits, reads without counting, and refuses what it cannot count', async () => {
  const app = Fastify()
  await app.register(fastifyRateLimit, { max: 2, timeWindow: '1 minute', store: tidegateStore({ algorithm: 'token_bucket' }) })
  app.get('/', async () => 'ok')
  const answers = []
  for (let turn = 0; turn < 3; turn++) answers.push(await app.inject('/'))
  assert.deepEqual(answers.map((answer) => answer.statusCode), [200, 200, 429])
  assert.equal(answers[2].headers['retry-after'], '30')
  await app.close()
  for (const options of [{ continueExceeding: true }, { exponentialBackoff: true }]) {
    await assert.rejects(async () => Fastify().register(fastifyRateLimit, { ...options, store: tidegateStore() }), LimitError)
  }
  await assert.rejects(async () => Fastify().register(fastifyRateLimit, { ban: 1, store: tidegateStore({ algorithm: 'token_bucket' }) }), LimitError)
})

test('hono: denied beyond the limit', async () => {
  const app = new Hono()
  app.use(rateLimiter({ windowMs: 60_000, limit: 2, keyGenerator: () => 'all', store: new HonoStore() }))
  app.get('/', (context) => context.text('ok'))
  const answers = []
  for (let turn = 0; turn < 3; turn++) answers.push((await app.request('/')).status)
  assert.deepEqual(answers, [200, 200, 429])
})

test('nest: a log of each request, and blocks of their own length', async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_700_000_000_000 })
  const storage = new TidegateThrottlerStorage()
  const hit = (block = 60_000) => storage.increment('a', 60_000, 2, block, 'default')
  assert.deepEqual(await hit(), { totalHits: 1, timeToExpire: 60, isBlocked: false, timeToBlockExpire: 0 })
  t.mock.timers.setTime(1_700_000_020_000)
  await hit()
  assert.deepEqual(await hit(), { totalHits: 3, timeToExpire: 60, isBlocked: true, timeToBlockExpire: 40 })
  t.mock.timers.setTime(1_700_000_060_000)
  assert.equal((await hit()).isBlocked, false)
  assert.equal((await hit(5_000)).timeToBlockExpire, 5)
  t.mock.timers.setTime(1_700_000_065_000)
  assert.deepEqual([(await hit(5_000)).totalHits, (await storage.increment('a', 60_000, 0, 60_000, 'default')).isBlocked], [1, true])
  storage.onApplicationShutdown()
})
