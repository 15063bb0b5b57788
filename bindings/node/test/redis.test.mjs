// Limits over Redis, by ioredis and node-redis: the same counters as a server, what happens without an answer, and the
// stores of other libraries.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cluster, Redis } from 'ioredis'
import { createClient } from 'redis'
import { Client, LimitError, RateLimited, RedisLimiter, StoreError } from 'tidegate'
import { TidegateStore } from 'tidegate/express'
import { tidegateStore } from 'tidegate/fastify'
import { TidegateThrottlerStorage } from 'tidegate/nestjs'
import { freePort, startRedis, startTidegate } from './servers.mjs'

const PATIENT = { timeoutMs: 5000 }

async function ioredis(t) {
  const { port, child } = await startRedis(t)
  const redis = new Redis(port, '127.0.0.1')
  t.after(() => redis.disconnect())
  return { port, child, redis, sendCommand: (...words) => redis.call(...words) }
}

test('a limiter over Redis answers as the one in memory', async (t) => {
  const { sendCommand } = await ioredis(t)
  const limiter = new RedisLimiter('3/minute; 2/hour', { sendCommand, ...PATIENT })
  const first = await limiter.check('user_42')
  assert.deepEqual([first.allowed, first.limit, first.remaining, first.retryAfter], [true, 2, 1, 0])
  assert.equal(await limiter.allow('user_42'), true)
  const denied = await limiter.check('user_42')
  assert.equal(denied.allowed, false)
  assert.ok(denied.retryAfter > 1790 && denied.retryAfter <= 1800)
  assert.equal(denied.headers('per-user')[0][0], 'retry-after')
  assert.equal((await limiter.peek('user_43')).remaining, 2)
  assert.equal((await limiter.settle('user_43', 9)).remaining, 0)
  await limiter.reset('user_42')
  assert.equal(await limiter.allow('user_42'), true)
  await assert.rejects(limiter.check(42), TypeError)
  assert.throws(() => new RedisLimiter('often', { sendCommand }), LimitError)
  assert.throws(() => new RedisLimiter('1/minute', { sendCommand, namespace: 'a b' }), /namespace/)
  assert.throws(() => new RedisLimiter('1/minute', { sendCommand, perAttribute: 'api_key' }), /`api_key` are secret.*`keySecret`/)
  for (const options of [{}, undefined, null]) assert.throws(() => new RedisLimiter('1/minute', options), { name: 'TypeError', message: /`sendCommand`/ })
  // The server knows a header by its name in lower case, and only then whether it is secret.
  assert.throws(() => new RedisLimiter('1/minute', { sendCommand, perAttribute: 'header.Authorization' }), /lower-case here; write `header.authorization`/)
  assert.deepEqual(await limiter.stats(), { keys: null, evictions: null })
})

test('an error says whether anything was charged, as far as that is certain', async (t) => {
  const { redis, sendCommand, port } = await ioredis(t)
  const chargedBy = async (sendCommand, name = 'limiter') => {
    const error = await new RedisLimiter('1/minute', { sendCommand, name, ...PATIENT }).check('a').then(() => undefined, (error) => error)
    assert.ok(error instanceof StoreError, String(error))
    return error.charged
  }
  const throwing = (error) => async () => { throw error }
  // What is charged may be answered with nonsense.
  assert.equal(await chargedBy(async (...words) => { await sendCommand(...words); return 'OK' }), null)
  assert.equal((await new RedisLimiter('1/minute', { sendCommand, ...PATIENT }).peek('a')).remaining, 0)
  await redis.lpush('tg:{a}:wrong@user_id:cell', 'junk')
  await redis.lpush('tg:{a}:wrong@user_id:tb:1m', 'junk')
  assert.equal(await chargedBy(sendCommand, 'wrong'), false)
  const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect()
  t.after(() => client.destroy())
  await redis.config('SET', 'requirepass', 'secret')
  const stranger = new Redis(port, '127.0.0.1', { enableReadyCheck: false })
  stranger.on('error', () => {})
  t.after(() => stranger.disconnect())
  assert.equal(await chargedBy((...words) => stranger.call(...words)), false)
  await client.sendCommand(['ACL', 'SETUSER', 'default', '-@scripting'])
  assert.equal(await chargedBy((...words) => client.sendCommand(words)), false)
  const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
  const partly = Object.assign(new AggregateError([refused, Object.assign(new Error('timed out'), { code: 'ETIMEDOUT' })]), { code: 'ECONNREFUSED' })
  const errors = [[refused, false], [new AggregateError([refused, refused]), false], [partly, null], [Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' }), null], [new Error('Connection is closed.'), null], [undefined, null]]
  for (const [error, charged] of errors) assert.equal(await chargedBy(throwing(error)), charged, String(error))
})

test('any time is waited for, also one that is longer than timers last', async () => {
  for (const timeoutMs of [Infinity, 2 ** 31]) {
    const limiter = new RedisLimiter('1/minute', { timeoutMs, sendCommand: async () => {
      await new Promise((resolve) => setTimeout(resolve, 20))
      return [1_700_000_000_000_000, 0, 1_700_000_000_000_000]
    } })
    assert.equal(await limiter.allow('a'), true)
  }
})

test('the client of node-redis is as good, and a script that the server forgot is sent again', async (t) => {
  const { port } = await startRedis(t)
  const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect()
  t.after(() => client.destroy())
  const limiter = new RedisLimiter('2/minute', { sendCommand: (...words) => client.sendCommand(words), algorithm: 'sliding_window_log', ...PATIENT })
  assert.equal(await limiter.allow('a'), true)
  await client.sendCommand(['SCRIPT', 'FLUSH'])
  assert.equal(await limiter.allow('a'), true)
  assert.equal(await limiter.allow('a'), false)
})

test('a server and this process share a limit', async (t) => {
  const { port, redis, sendCommand } = await ioredis(t)
  const rules = `rules:
  - {id: per-user, per: [user_id], limit: 4/hour}
  - {id: keys, per: [api_key], limit: 3/hour, match: {path: /keys}}
`
  const url = await startTidegate(t, rules, { TIDEGATE_REDIS: `redis://127.0.0.1:${port}`, TIDEGATE_KEY_SECRET: 'a secret of sixteen letters' })
  const server = new Client(url, PATIENT)
  const here = new RedisLimiter('4/hour', { sendCommand, name: 'per-user', ...PATIENT })
  const turns = []
  for (const turn of [1, 2, 3]) turns.push((await server.check({ user_id: 'ada' })).remaining, (await here.check('ada')).remaining, turn)
  assert.deepEqual(turns, [3, 2, 1, 1, 0, 2, 0, 0, 3])
  assert.deepEqual(await redis.keys('tg:{ada}*'), ['tg:{ada}:per-user@user_id:tb:1h'])
  await server.check({ user_id: 'grace' })
  await here.reset('grace')
  assert.equal((await server.check({ user_id: 'grace' })).remaining, 3)
  const keys = new RedisLimiter('3/hour', { sendCommand, name: 'keys', perAttribute: 'api_key', keySecret: 'a secret of sixteen letters', ...PATIENT })
  await server.check({ api_key: 'k1', path: '/keys' })
  assert.equal((await keys.check('k1')).remaining, 1)
})

test('they share limits of every algorithm, several limits, and a namespace', async (t) => {
  const { port, redis, sendCommand } = await ioredis(t)
  const rules = [
    ...['token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window_log', 'sliding_window_counter', 'sliding_window_slots'].map((algorithm) => [algorithm, '6/day', algorithm]),
    ['several', '6/day; 9/366d', 'sliding_window_log'],
    ['several-by-default', '6/hour; 9/day', undefined],
  ]
  const lines = rules.map(([name, limit, algorithm]) => `  - {id: ${name}, per: [user_id], match: {path: /${name}}, limit: ${JSON.stringify(limit)}${algorithm === undefined ? '' : `, algorithm: ${algorithm}`}}\n`)
  const url = await startTidegate(t, `rules:\n${lines.join('')}`, { TIDEGATE_REDIS: `redis://127.0.0.1:${port}`, TIDEGATE_NAMESPACE: 'shop' })
  const server = new Client(url, PATIENT)
  for (const [name, limit, algorithm] of rules) {
    const here = new RedisLimiter(limit, { sendCommand, name, namespace: 'shop', ...(algorithm !== undefined && { algorithm }), ...PATIENT })
    const keys = async () => (await redis.keys(`*${name}@*`)).length
    assert.equal((await here.check('ada', 2)).remaining, 4, name)
    const made = await keys()
    assert.equal((await server.check({ user_id: 'ada', path: `/${name}` }, { cost: 3 })).remaining, 1, name)
    assert.deepEqual([await here.allow('ada'), await here.allow('ada')], [true, false], name)
    assert.equal((await server.check({ user_id: 'ada', path: `/${name}` })).allowed, false, name)
    assert.deepEqual([made > 0, await keys()], [true, made], name)
  }
})

test('in a cluster each check has its keys in one slot', async (t) => {
  const { port } = await startRedis(t, '--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1', '--cluster-port', String(await freePort()))
  const node = new Redis(port, '127.0.0.1', { enableReadyCheck: false })
  t.after(() => node.disconnect())
  await node.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383')
  while (!(await node.call('CLUSTER', 'INFO')).includes('cluster_state:ok')) await new Promise((resolve) => setTimeout(resolve, 20))
  const cluster = new Cluster([{ host: '127.0.0.1', port }])
  t.after(() => cluster.disconnect())
  const sendCommand = (...words) => cluster.call(...words)
  const limiter = new RedisLimiter('5/minute; 20/hour; 100/day', { sendCommand, ...PATIENT })
  for (const key of ['a', 'ü {x}', '', 'x'.repeat(300)]) {
    assert.deepEqual([(await limiter.check(key)).remaining, (await limiter.peek(key)).remaining], [4, 4], key)
    await limiter.reset(key)
    assert.equal((await limiter.peek(key)).remaining, 5)
  }
  const workers = new RedisLimiter('1', { sendCommand, name: 'workers', algorithm: 'concurrency', ...PATIENT })
  const permit = await workers.acquire('job')
  assert.deepEqual([await workers.allow('job'), await permit.release(), await workers.allow('job')], [false, true, true])
  const store = new TidegateStore({ limiter: new RedisLimiter('2/minute', { sendCommand, name: 'store', ...PATIENT }) })
  store.init({ windowMs: 60_000, limit: 2, skipFailedRequests: true })
  await store.increment('a')
  await store.decrement('a')
  assert.equal(await store.get('a'), undefined)
})

test('without an answer it throws, allows or denies, and says what is known', async (t) => {
  const hanging = new RedisLimiter('1/minute', { sendCommand: () => new Promise(() => {}), timeoutMs: 20 })
  await assert.rejects(hanging.check('a'), (error) => {
    assert.ok(error instanceof StoreError)
    assert.equal(error.charged, null)
    assert.match(error.message, /did not answer within 20 ms/)
    return true
  })
  const failing = { sendCommand: async () => { throw new Error('connection lost') } }
  await assert.rejects(new RedisLimiter('1/minute', failing).allow('a'), /connection lost/)
  assert.equal(await new RedisLimiter('1/minute', { ...failing, onStoreFailure: 'allow' }).allow('a'), true)
  const denied = await new RedisLimiter('1/minute', { ...failing, onStoreFailure: 'deny' }).check('a')
  assert.deepEqual([denied.allowed, denied.retryAfter], [false, 1])
  await assert.rejects(new RedisLimiter('1/minute', { ...failing, onStoreFailure: 'deny' }).acquire('a'), { name: 'RateLimited', message: /Redis did not answer.*`deny`/ })
  for (const reply of [null, 'OK', [], [1], [1, [2]], [1, ['x', 1, 1, 1, 1, 1]], [1, 'ERR no']]) {
    await assert.rejects(new RedisLimiter('1/minute', { sendCommand: async () => reply }).check('a'), StoreError)
  }
})

test('turns are reserved in Redis, and given back by an abort', async (t) => {
  const { sendCommand } = await ioredis(t)
  const limiter = new RedisLimiter('20/second burst 1', { sendCommand, ...PATIENT })
  for (let turn = 0; turn < 3; turn++) assert.equal((await limiter.acquire('api')).decision.allowed, true)
  const slow = new RedisLimiter('1/minute', { sendCommand, name: 'slow', maxWaitMs: 120_000, ...PATIENT })
  await slow.acquire('api')
  await assert.rejects(slow.acquire('api', { timeoutMs: 10 }), RateLimited)
  const controller = new AbortController()
  const waiting = slow.acquire('api', { signal: controller.signal })
  setTimeout(() => controller.abort(new Error('changed my mind')), 50)
  await assert.rejects(waiting, /changed my mind/)
  assert.ok((await slow.peek('api')).retryAfter <= 60)
  const workers = new RedisLimiter('1', { sendCommand, name: 'workers', algorithm: 'concurrency', ...PATIENT })
  const held = await workers.acquire('job')
  assert.equal(await workers.allow('job'), false)
  const next = workers.acquire('job')
  assert.equal(await held.release(), true)
  assert.equal(await held.release(), false)
  await (await next)[Symbol.asyncDispose]()
  assert.equal(await (await workers.check('job')).permit.release(), true)
})

test('stores count with a limiter over Redis', async (t) => {
  const { sendCommand } = await ioredis(t)
  const limiter = (name) => new RedisLimiter('2/minute', { sendCommand, name, ...PATIENT })
  const store = new TidegateStore({ limiter: limiter('express'), prefix: 'api:' })
  store.init({ windowMs: 60_000, limit: 2, skipFailedRequests: true })
  assert.equal(store.localKeys, false)
  const hits = async () => (await store.increment('a')).totalHits
  assert.deepEqual([await hits(), await hits(), await hits()], [1, 2, 3])
  assert.equal((await store.get('a')).totalHits, 2)
  // The first was denied, and has charged nothing.
  for (const remaining of [2, 1]) {
    await store.decrement('a')
    assert.equal((await store.get('a')).totalHits, remaining)
  }
  assert.deepEqual([await hits(), await hits()], [2, 3])
  await store.resetKey('a')
  assert.equal(await store.get('a'), undefined)
  await assert.rejects(store.resetAll(), /reset keys one by one/)
  for (const method of ['increment', 'decrement', 'get', 'resetKey']) await assert.rejects(store[method](undefined), TypeError)
  const Fastify = tidegateStore({ limiter: limiter('fastify') })
  const incr = () => new Promise((resolve, reject) => new Fastify({}).incr('a', (error, usage) => (error ? reject(error) : resolve(usage.current)), 60_000, 2))
  assert.deepEqual([await incr(), await incr(), await incr()], [1, 2, 3])
  const nest = new TidegateThrottlerStorage({ limiter: limiter('nest') })
  const blocked = async () => (await nest.increment('a', 60_000, 2, 60_000, 'default')).isBlocked
  assert.deepEqual([await blocked(), await blocked(), await blocked()], [false, false, true])
})
