// The stores in place of the built-in ones: the same requests at the same times get the same answers.

import 'reflect-metadata'
import assert from 'node:assert/strict'
import { AsyncLocalStorage } from 'node:async_hooks'
import { once } from 'node:events'
import { test } from 'node:test'
import fastifyRateLimit from '@fastify/rate-limit'
import { ThrottlerStorageService } from '@nestjs/throttler'
import express from 'express'
import { MemoryStore, rateLimit } from 'express-rate-limit'
import fc from 'fast-check'
import Fastify from 'fastify'
import { Hono } from 'hono'
import { MemoryStore as HonoMemoryStore, rateLimiter } from 'hono-rate-limiter'
import { TidegateStore } from 'tidegate/express'
import { tidegateStore } from 'tidegate/fastify'
import { TidegateStore as HonoStore } from 'tidegate/hono'
import { TidegateThrottlerStorage } from 'tidegate/nestjs'
import { IS_SHORT } from './settings.mjs'

const START = 1_700_000_000_000
const LIMIT = { windowMs: 60_000, limit: 2 }
/** Paths that are asked for, and milliseconds that pass. */
const STEPS = ['/', '/', '/', 20_000, '/', 39_999, '/', 1, '/', '/fail', '/', 61_000, '/fail', '/fail', '/', '/?key=b', 25_000, '/?key=b', '/', '/']

/** The answers to all steps: status, headers about limits, and what the application says. */
async function play(t, steps, ask) {
  const answers = []
  t.mock.timers.setTime(START)
  for (const step of steps) {
    if (typeof step === 'number') t.mock.timers.tick(step)
    else answers.push(await ask(step))
  }
  return answers
}

function described(status, headers, body) {
  return [status, [...headers].filter(([name]) => /rate|retry/.test(name)), body]
}

function withFakeTime(name, run) {
  test(name, async (t) => {
    t.mock.timers.enable({ apis: ['Date', 'setInterval'], now: START })
    await run(t)
  })
}

const byQuery = (request) => String(request.query.key ?? 'a')
const EXPRESS = {
  'draft 6': { standardHeaders: 'draft-6' },
  'draft 7': { standardHeaders: 'draft-7', legacyHeaders: false },
  'draft 8': { standardHeaders: 'draft-8', identifier: 'orders' },
  'a limit that is a function': { limit: async (request) => (request.query.key === 'b' ? 1 : 3) },
  'no limit': { limit: 0, validate: { limit: false } },
  keys: { keyGenerator: byQuery },
  'requests that are skipped': { skip: (request) => request.query.key === 'b' },
  'failed requests': { skipFailedRequests: true },
  'successful requests': { skipSuccessfulRequests: true },
  'what is a success': { skipSuccessfulRequests: true, requestWasSuccessful: (request) => request.query.key !== 'b' },
  'status and message': { statusCode: 420, message: { error: 'calm down' } },
  'a handler': { handler: (request, response, next, options) => response.status(options.statusCode).json([request.counted.used, request.counted.resetTime]), requestPropertyName: 'counted' },
}

async function expressAnswers(t, options, store) {
  const app = express()
  const limiter = rateLimit({ ...LIMIT, ...options, store })
  app.use(limiter)
  app.get('/fail', (request, response) => response.status(400).send('failed'))
  app.get('/', (request, response) => response.json(request.rateLimit ?? 'skipped'))
  const server = app.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = `http://127.0.0.1:${server.address().port}`
  const answers = await play(t, STEPS, async (path) => {
    const answer = await fetch(address + path)
    return described(answer.status, answer.headers, await answer.text())
  })
  const ask = async () => described(...(await fetch(address).then(async (answer) => [answer.status, answer.headers, await answer.text()])))
  answers.push(await limiter.getKey('::ffff:127.0.0.1') ?? null, await limiter.resetKey('127.0.0.1'), await ask(), await ask())
  server.close()
  store.shutdown()
  return answers
}

for (const [name, options] of Object.entries(EXPRESS)) {
  withFakeTime(`express: ${name}`, async (t) => {
    const builtIn = await expressAnswers(t, options, new MemoryStore())
    assert.deepEqual(await expressAnswers(t, options, new TidegateStore()), builtIn)
  })
}

withFakeTime('express: its checks of stores find what they find with the built-in one', async (t) => {
  for (const make of [() => new MemoryStore(), () => new TidegateStore(), () => new TidegateStore({ algorithm: 'token_bucket' })]) {
    const logged = []
    const logger = { error: (error) => logged.push(error.code), warn: (error) => logged.push(error.code) }
    const app = express()
    const shared = make()
    app.use(...[shared, shared, make()].map((store) => rateLimit({ ...LIMIT, store, logger })))
    app.get('/made', (request, response) => {
      rateLimit({ ...LIMIT, store: make(), logger })
      response.send('ok')
    })
    const server = app.listen(0, '127.0.0.1')
    t.after(() => server.close())
    await once(server, 'listening')
    await fetch(`http://127.0.0.1:${server.address().port}/made`)
    assert.deepEqual(logged, ['ERR_ERL_STORE_REUSE', 'ERR_ERL_DOUBLE_COUNT', 'ERR_ERL_CREATED_IN_REQUEST_HANDLER'])
  }
})

withFakeTime('express: any sequence of calls of a store', async (t) => {
  const call = fc.tuple(fc.constantFrom('increment', 'increment', 'increment', 'decrement', 'get', 'resetKey', 'resetAll'), fc.constantFrom('a', 'b', '::1'), fc.constantFrom(0, 0, 1, 999, 20_000, 60_000))
  await fc.assert(
    fc.asyncProperty(fc.array(call, { maxLength: 60 }), async (calls) => {
      const stores = [new MemoryStore(), new TidegateStore()]
      for (const store of stores) store.init(LIMIT)
      for (const [method, key, later] of calls) {
        t.mock.timers.tick(later)
        const [expected, found] = await Promise.all(stores.map(async (store) => store[method](key)))
        assert.deepEqual([found?.totalHits, found?.resetTime], [expected?.totalHits, expected?.resetTime], `${method} ${key}`)
      }
      for (const store of stores) store.shutdown()
    }),
    { numRuns: IS_SHORT ? 200 : 2000 },
  )
})

// What tests of the built-in stores look at besides their answers.
for (const [name, BuiltIn, Store] of [['express', MemoryStore, TidegateStore], ['hono', HonoMemoryStore, HonoStore]]) {
  withFakeTime(`${name}: the timer, and where keys are kept`, async (t) => {
    for (const make of [() => new BuiltIn(), () => new Store()]) {
      const store = make()
      store.init(LIMIT)
      const where = (key) => [store.current.has(key), store.previous.has(key)]
      const first = await store.increment('a')
      assert.deepEqual(where('a'), [true, false])
      t.mock.timers.tick(LIMIT.windowMs)
      assert.deepEqual(where('a'), [false, true])
      const [again, other] = [await store.increment('a'), await store.increment('b')]
      assert.deepEqual([where('a'), again === first, again === other, again.totalHits], [[true, false], true, false, 1])
      t.mock.timers.tick(LIMIT.windowMs)
      t.mock.timers.tick(LIMIT.windowMs)
      assert.deepEqual([store.current.size, store.previous.size], [0, 0])
      // The timer turns the page of keys that came after it began, too.
      t.mock.timers.tick(30)
      await store.increment('d')
      await store.increment('e')
      t.mock.timers.tick(LIMIT.windowMs - 30)
      assert.deepEqual([where('d'), where('e')], [[false, true], [false, true]])
      const { interval } = store
      assert.notEqual(interval, undefined)
      store.shutdown()
      assert.equal(store.interval, interval)
      await store.increment('c')
      t.mock.timers.tick(LIMIT.windowMs)
      assert.deepEqual(where('c'), [true, false])
      const unused = make()
      assert.equal((await unused.increment('a')).totalHits, 1)
      unused.init({ ...LIMIT, windowMs: -1 })
      unused.shutdown()
    }
  })
}

test('express: the timer keeps no process alive, and some runtimes return a number for it', (t) => {
  for (const algorithm of ['fixed_window', 'token_bucket']) {
    const store = new TidegateStore({ algorithm })
    store.init({ ...LIMIT, windowMs: 100 * 86_400_000 })
    assert.equal(store.interval.hasRef(), false)
    store.shutdown()
  }
  const set = t.mock.method(globalThis, 'setInterval', () => 7)
  const store = new TidegateStore()
  store.init(LIMIT)
  assert.equal(store.interval, 7)
  set.mock.mockImplementation(() => { throw new Error('not while modules are loaded') })
  const early = new TidegateStore()
  early.init(LIMIT)
  assert.deepEqual([early.interval, early.increment('a').totalHits], [undefined, 1])
})

const HONO = {
  'draft 6': {},
  'draft 7': { standardHeaders: 'draft-7' },
  'a limit that is a function': { limit: async (context) => (context.req.query('key') === 'b' ? 1 : 3) },
  keys: { keyGenerator: (context) => context.req.query('key') ?? 'a' },
  'requests that are skipped': { skip: (context) => context.req.query('key') === 'b' },
  'failed requests': { skipFailedRequests: true },
  'successful requests': { skipSuccessfulRequests: true },
  'status and message': { statusCode: 420, message: { error: 'calm down' } },
}

async function honoAnswers(t, options, store) {
  const app = new Hono()
  app.use(rateLimiter({ ...LIMIT, keyGenerator: () => 'all', ...options, store }))
  app.get('/fail', (context) => context.text('failed', 400))
  app.get('/', (context) => context.json([context.get('rateLimit') ?? 'skipped']))
  const answers = await play(t, STEPS, async (path) => {
    const answer = await app.request(path)
    return described(answer.status, answer.headers, await answer.text())
  })
  store.shutdown()
  return answers
}

for (const [name, options] of Object.entries(HONO)) {
  withFakeTime(`hono: ${name}`, async (t) => {
    const builtIn = await honoAnswers(t, options, new HonoMemoryStore())
    assert.deepEqual(await honoAnswers(t, options, new HonoStore()), builtIn)
  })
}

const FASTIFY = {
  plain: {},
  'draft headers': { enableDraftSpec: true },
  'a limit that is a function': { max: async (request, key) => (key === 'b' ? 1 : 3), keyGenerator: byQuery },
  'a window that is a function': { timeWindow: (request, key) => (key === 'b' ? 20_000 : 60_000), keyGenerator: byQuery },
  'who is banned': { ban: 1 },
  'who is allowed': { allowList: (request) => request.query.key === 'b' },
  'an answer of its own': { errorResponseBuilder: (request, context) => ({ statusCode: 429, ...context }) },
  'headers that are not added': { addHeadersOnExceeding: { 'x-ratelimit-reset': false }, addHeaders: { 'retry-after': false } },
}

async function fastifyAnswers(t, options, store) {
  const app = Fastify()
  await app.register(fastifyRateLimit, { max: 2, timeWindow: 60_000, ...options, store })
  app.get('/', async () => 'ok')
  app.get('/fail', { config: { rateLimit: { max: 1, timeWindow: 30_000 } } }, async () => 'ok')
  const peek = app.createRateLimit()
  app.get('/peek', { config: { rateLimit: false } }, async (request) => [await peek(request, { increment: false }), await peek(request)])
  const steps = [...STEPS, '/peek', '/peek', 10_000, '/peek', '/peek']
  const answers = await play(t, steps, async (path) => {
    const { statusCode, headers, body } = await app.inject(path)
    return described(statusCode, Object.entries(headers), body)
  })
  await app.close()
  return answers
}

for (const [name, options] of Object.entries(FASTIFY)) {
  withFakeTime(`fastify: ${name}`, async (t) => {
    const builtIn = await fastifyAnswers(t, options, undefined)
    assert.deepEqual(await fastifyAnswers(t, options, tidegateStore()), builtIn)
  })
}

// Where a block lasts as long as the window, the built-in storage blocks for a whole window after each denial; that of Tidegate until
// the oldest request has left the window.
withFakeTime('nest: throttlers, limits and blocks', async (t) => {
  const hits = (name, limit, block, keys = ['a'], ttl = 60_000) => keys.map((key) => ({ key, limit, block, name, ttl }))
  const calls = [
    ...hits('default', 3, 10_000, ['a', 'a', 'b', 'a']), ...hits('short', 1, 5_000, ['a2', 'a2', 'a2']), 4_999, ...hits('short', 1, 5_000, ['a2']), 1,
    ...hits('short', 1, 5_000, ['a2', 'a2']), ...hits('default', 3, 10_000, ['a', 'a', 'b', 'b']), 10_000, ...hits('default', 3, 10_000, ['a', 'a', 'a', 'a', 'b']),
    ...hits('none', 0, 0, ['n', 'n']), 60_000, ...hits('zero', 2, 0, ['z', 'z', 'z']), 30_000, ...hits('zero', 2, 0, ['z']), 30_000, ...hits('zero', 2, 0, ['z']),
    // A block ends while another begins, and while other windows are counted.
    ...hits('pause', 1, 5_000, ['p', 'p']), 6_000, ...hits('pause', 1, 5_000, ['q', 'q', 'p', 'p']), 6_000, ...hits('burst', 9, 0, ['r'], 1_000), ...hits('pause', 1, 5_000, ['p', 'q']),
  ]
  const recorded = async (storage) => {
    const records = []
    t.mock.timers.setTime(START)
    for (const call of calls) {
      if (typeof call === 'number') t.mock.timers.tick(call)
      else {
        const record = await storage.increment(call.key, call.ttl, call.limit, call.block, call.name)
        // How long a request counts that is not denied is that of each request, and not of the first one.
        records.push([call.name, record.totalHits, record.isBlocked, record.isBlocked && call.limit > 0 ? record.timeToBlockExpire : 0])
      }
    }
    storage.onApplicationShutdown()
    return records
  }
  assert.deepEqual(await recorded(new TidegateThrottlerStorage()), await recorded(new ThrottlerStorageService()))
})

withFakeTime('nest: which keys are kept, and when they are swept', async (t) => {
  const seen = async (storage) => {
    t.mock.timers.setTime(START)
    const found = []
    const look = () => found.push([storage.storage.size, ...['idle', 'busy', 'blocked'].map((key) => storage.storage.has(key))])
    for (let client = 0; client < 20; client++) await storage.increment(`client ${client}`, 1_000, 5, 0, 'test')
    await storage.increment('idle', 1_000, 5, 0, 'test')
    await storage.increment('blocked', 1_000, 1, 10_000, 'test')
    await storage.increment('blocked', 1_000, 1, 10_000, 'test')
    look()
    for (const later of [900, 1_100, 7_000, 1_000, 2_000]) {
      t.mock.timers.tick(later)
      if (later === 900) await storage.increment('busy', 8_000, 5, 0, 'other')
      storage.evictIdleRecords()
      look()
    }
    storage.onApplicationShutdown()
    look()
    return found
  }
  const builtIn = await seen(new ThrottlerStorageService())
  assert.deepEqual(builtIn.map(([size]) => size), [22, 23, 2, 1, 0, 0, 0])
  assert.deepEqual(await seen(new TidegateThrottlerStorage()), builtIn)
})

test('nest: what sweeps is no part of a request', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const context = new AsyncLocalStorage()
  class Storage extends TidegateThrottlerStorage {
    sweepIntervalMs = 10
    sweptIn = []

    evictIdleRecords() {
      this.sweptIn.push(context.getStore())
    }
  }
  const storage = new Storage()
  await context.run('a request', () => storage.increment('a', 1000, 1, 0, 'default'))
  t.mock.timers.tick(20)
  storage.onApplicationShutdown()
  t.mock.timers.tick(20)
  assert.deepEqual(storage.sweptIn, [undefined, undefined])
})
