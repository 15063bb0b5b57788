// The limiter in memory: answers by hand, what is refused, and waiting for a turn.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Decision, LimitError, Limiter, Permit, RateLimited } from 'tidegate'

function withClock(limits, options = {}) {
  let now = 1_700_000_000_000
  const limiter = new Limiter(limits, { ...options, now: () => now })
  return { limiter, advance: (millis) => (now += millis) }
}

test('a decision by hand', () => {
  const { limiter, advance } = withClock('2/minute', { algorithm: 'sliding_window_log' })
  const first = limiter.check('user_42')
  assert.ok(first instanceof Decision)
  assert.deepEqual({ ...first }, { allowed: true, limit: 2, remaining: 1, retryAfter: 0, resetAt: 1_700_000_060, delay: 0, permit: null })
  advance(15_000)
  assert.equal(limiter.allow('user_42'), true)
  const denied = limiter.check('user_42')
  assert.deepEqual({ ...denied }, { allowed: false, limit: 2, remaining: 0, retryAfter: 45, resetAt: 1_700_000_075, delay: 0, permit: null })
  assert.equal(limiter.check('user_43').remaining, 1)
  advance(45_000)
  assert.equal(limiter.allow('user_42'), true)
  assert.equal(limiter.check('user_42', 3).retryAfter, null)
})

test('all limits allow a request, or none is charged', () => {
  const { limiter, advance } = withClock('3/minute; 2/second')
  assert.deepEqual([1, 2, 3].map(() => limiter.allow('a')), [true, true, false])
  assert.equal(limiter.peek('a').limit, 2)
  advance(1000)
  assert.deepEqual([1, 2].map(() => limiter.allow('a')), [true, false])
  assert.equal(limiter.check('a').limit, 3)
  assert.equal(new Limiter(['3/minute', '2/second']).check('a').limit, 2)
})

test('peek takes nothing, settle asks nothing, reset forgets', () => {
  const { limiter } = withClock('10/minute')
  assert.equal(limiter.peek('a').remaining, 10)
  assert.equal(limiter.check('a', 0).remaining, 10)
  assert.equal(limiter.settle('a', 30).remaining, 0)
  assert.equal(limiter.allow('a'), false)
  assert.deepEqual(limiter.stats(), { keys: 1, evictions: 0 })
  assert.equal(limiter.reset('a'), undefined)
  assert.equal(limiter.peek('a').remaining, 10)
})

test('headers are those of the server', () => {
  const { limiter } = withClock('1/minute; 1/hour')
  limiter.check('a')
  assert.deepEqual(limiter.check('a').headers('per-user'), [
    ['retry-after', '3600'],
    ['x-ratelimit-limit', '1'],
    ['x-ratelimit-remaining', '0'],
    ['x-ratelimit-reset', '1700003600'],
    ['ratelimit-policy', '"per-user";q=1;w=60, "per-user/1h";q=1;w=3600'],
    ['ratelimit', '"per-user";r=0;t=60, "per-user/1h";r=0;t=3600'],
  ])
  const one = withClock('5/second').limiter
  const early = one.check('a')
  one.check('a', 4)
  assert.deepEqual(early.headers().at(-1), ['ratelimit', '"limit";r=4;t=1'])
})

test('limits that are none are refused with what is accepted', () => {
  const refused = (make, pattern) => assert.throws(make, (error) => {
    assert.ok(error instanceof LimitError && error instanceof RangeError)
    assert.match(error.message, pattern)
    return true
  })
  refused(() => new Limiter('often'), /^`often` is not a limit: .*`100\/minute`/)
  refused(() => new Limiter('0/minute'), /would never let anything pass/)
  refused(() => new Limiter('1/minute; 2/minute'), /same window/)
  refused(() => new Limiter(''), /limit/)
  refused(() => new Limiter([]), /no limit|limit/)
  refused(() => new Limiter(5), /`5` is not a limit/)
  refused(() => new Limiter('1/minute', { algorithm: 'leaky' }), /`leaky` is not an algorithm; expected one of `token_bucket`/)
  refused(() => new Limiter('1/minute', { algorithm: 7 }), /`7` is not an algorithm/)
  assert.throws(() => new Limiter('1/minute', { maxKeys: 0 }), RangeError)
  assert.throws(() => new Limiter('1/minute', { maxWaitMs: -1 }), RangeError)
  assert.throws(() => new Limiter('1/minute', { now: 5 }), TypeError)
  assert.throws(() => new Limiter('1/minute', { now: () => 'today' }).allow('a'), TypeError)
})

test('keys are strings, and costs whole numbers', async () => {
  const { limiter } = withClock('10/minute')
  for (const key of [undefined, null, 42, {}, ['a'], Symbol.iterator, Buffer.from('a')]) {
    for (const method of ['check', 'allow', 'peek', 'settle', 'reset']) {
      assert.throws(() => limiter[method](key, 1), { name: 'TypeError', message: /is not a key; give a string/ })
    }
    await assert.rejects(limiter.acquire(key), TypeError)
  }
  for (const cost of [-1, 0.5, Infinity, NaN, 2 ** 51]) assert.throws(() => limiter.check('a', cost), { name: 'RangeError', message: /is not a cost/ })
  for (const cost of ['1', null, 1n]) assert.throws(() => limiter.allow('a', cost), { name: 'TypeError', message: /is not a cost/ })
  assert.equal(limiter.check('a', 2 ** 50).retryAfter, null)
})

test('a lone surrogate is replaced, and keys of any length are distinct', () => {
  const { limiter } = withClock('1/minute')
  assert.equal(limiter.allow('a\ud800'), true)
  assert.equal(limiter.allow('a\ufffd'), false)
  const long = 'k'.repeat(100_000)
  assert.deepEqual([long, `${long}x`, 'ü', 'u', '', 'é'.repeat(3000)].map((key) => limiter.allow(key)), Array(6).fill(true))
  assert.deepEqual([long, `${long}x`, 'ü', 'u', '', 'é'.repeat(3000)].map((key) => limiter.allow(key)), Array(6).fill(false))
})

test('many keys and many limiters: the memory grows, and no counter is another', () => {
  const limiters = Array.from({ length: 50 }, () => withClock('1/minute').limiter)
  for (let key = 0; key < 20_000; key++) limiters[key % 50].check(`key ${key}`)
  for (let key = 0; key < 20_000; key++) {
    assert.equal(limiters[key % 50].check(`key ${key}`).allowed, false)
    assert.equal(limiters[(key + 1) % 50].peek(`key ${key}`).allowed, true)
  }
  const small = withClock('1/hour', { maxKeys: 100 }).limiter
  for (let key = 0; key < 1000; key++) small.check(String(key))
  assert.equal(small.stats().keys <= 100 && small.stats().evictions >= 900, true)
})

test('a clock that is set back grants nothing and freezes nothing', () => {
  const { limiter, advance } = withClock('1/minute')
  limiter.check('a')
  advance(-3_600_000)
  assert.equal(limiter.allow('a'), false)
  advance(60_000)
  assert.equal(limiter.allow('a'), true)
  let now = 0
  const early = new Limiter('1/second', { now: () => now })
  assert.deepEqual([early.allow('a'), early.allow('a')], [true, false])
  now = -5
  assert.equal(early.allow('a'), false)
})

test('turns are given in the order of the calls', async () => {
  const limiter = new Limiter('5/second burst 1')
  const order = []
  await Promise.all([1, 2, 3].map((turn) => limiter.acquire('api').then((permit) => {
    assert.ok(permit instanceof Permit && permit.decision.allowed)
    assert.equal(permit.release(), false)
    order.push(turn)
  })))
  assert.deepEqual(order, [1, 2, 3])
})

test('a turn does not come early: not after long work, and not by a timer that ends before', async (t) => {
  const limiter = new Limiter('10/second burst 1')
  limiter.check('api')
  // The event loop last looked at the clock before this.
  for (const began = Date.now(); Date.now() - began < 60;);
  const due = Date.now() + limiter.peek('api').retryAfter * 1000
  await limiter.acquire('api')
  assert.ok(Date.now() >= due - 1, `${due - Date.now()} ms early`)

  let now = 0
  const set = t.mock.method(globalThis, 'setTimeout', (call, duration) => {
    waits.push(duration)
    now += Math.max(1, duration - 5)
    queueMicrotask(call)
  })
  const waits = []
  const early = new Limiter('1/minute burst 1', { now: () => now, maxWaitMs: 60_000 })
  early.check('a')
  await early.acquire('a')
  assert.deepEqual([now >= 60_000, waits[0]], [true, 60_000])
  // A clock that stands still is not waited for.
  set.mock.mockImplementation((call) => queueMicrotask(call))
  await early.acquire('a')
  const counted = []
  set.mock.mockImplementation((call, duration) => {
    counted.push(duration)
    queueMicrotask(call)
  })
  const frozen = new Limiter('1/100ms', { algorithm: 'fixed_window', now: () => 1000, maxWaitMs: 250 })
  frozen.check('a')
  await assert.rejects(frozen.acquire('a'), RateLimited)
  assert.ok(counted.length > 0 && counted.length < 10)
})

test('a wait that would be too long is refused immediately', async () => {
  const { limiter } = withClock('1/minute')
  limiter.check('a')
  await assert.rejects(limiter.acquire('a'), (error) => {
    assert.ok(error instanceof RateLimited)
    assert.match(error.message, /only after 60\.000 s/)
    assert.equal(error.retryAfter, 60)
    assert.equal(error.decision.allowed, false)
    return true
  })
  await assert.rejects(limiter.acquire('b', { cost: 2 }), /above the limit of 1/)
  const patient = withClock('10/second burst 1').limiter
  patient.check('a')
  await assert.rejects(patient.acquire('a', { timeoutMs: 50 }), RateLimited)
  assert.equal(patient.peek('a').retryAfter, 0.1)
})

test('an abort gives back what was reserved', async () => {
  const { limiter } = withClock('1/second burst 1')
  limiter.check('a')
  const controller = new AbortController()
  const waiting = limiter.acquire('a', { signal: controller.signal })
  assert.equal(limiter.peek('a').retryAfter, 2)
  controller.abort(new Error('changed my mind'))
  await assert.rejects(waiting, /changed my mind/)
  assert.equal(limiter.peek('a').retryAfter, 1)
  await assert.rejects(limiter.acquire('a', { signal: AbortSignal.abort() }), { name: 'AbortError' })
})

test('permits are held until they are released', async () => {
  const limiter = new Limiter('1', { algorithm: 'concurrency' })
  const held = await limiter.acquire('worker')
  assert.equal(limiter.allow('worker'), false)
  const waiting = limiter.acquire('worker')
  assert.equal(held.release(), true)
  assert.equal(held.release(), false)
  const second = await waiting
  second[Symbol.dispose]()
  const decision = limiter.check('worker')
  assert.equal(limiter.check('worker').permit, null)
  assert.equal(decision.permit.release(), true)
  assert.equal(limiter.allow('worker'), true)
  await assert.rejects(limiter.acquire('worker', { timeoutMs: 5 }), RateLimited)
})

test('other algorithms are asked again', async () => {
  const limiter = new Limiter('1/20ms', { algorithm: 'fixed_window' })
  for (let turn = 0; turn < 3; turn++) await limiter.acquire('a')
  assert.equal(limiter.peek('a').limit, 1)
})
