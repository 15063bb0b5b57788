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
import { LimitError } from 'tidegate'
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
  assert.throws(() => new TidegateStore().increment(undefined), TypeError)
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
