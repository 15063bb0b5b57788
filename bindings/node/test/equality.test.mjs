// The answers are those of Rust: random calls are played here and by a program of Rust.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import fc from 'fast-check'
import { Limiter } from 'tidegate'
import { IS_SHORT } from './settings.mjs'

const CALLS = 100
const GAMES = IS_SHORT ? 50 : 1000

const algorithms = fc.constantFrom('token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window_log', 'sliding_window_counter', 'sliding_window_slots')
const windows = fc.constantFrom('second', 'minute', 'hour', '100ms', '7s', '90m')
const counts = fc.oneof(fc.integer({ min: 1, max: 12 }), fc.constantFrom(100, 1000, 999_999_937))
const limits = algorithms.chain((algorithm) => {
  const burst = algorithm.endsWith('bucket') ? fc.option(fc.integer({ min: 1, max: 20 }), { nil: null }) : fc.constant(null)
  const limit = fc.tuple(counts, windows, burst)
  return fc.uniqueArray(limit, { minLength: 1, maxLength: 3, selector: ([, window]) => window }).map((made) =>
    made.map(([count, window, burst]) => [`${count}/${window}${burst === null ? '' : ` burst ${burst}`}`, algorithm, {}]))
})
const call = fc.tuple(
  fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 3_000_000 }), fc.constantFrom(999_999, 1_000_000, 60_000_000, 3_600_000_001)),
  fc.constantFrom('check', 'check', 'check', 'allow', 'peek', 'settle', 'reset'),
  fc.oneof(fc.constantFrom('a', 'b', 'ünïcode {}', ''), fc.string({ unit: 'grapheme', maxLength: 3 })),
  fc.oneof(fc.constant(1), fc.integer({ min: 0, max: 15 }), fc.constantFrom(1000, 2 ** 31, 2 ** 50)),
)
const games = fc.tuple(limits, fc.integer({ min: 1_000_000_000, max: 2_000_000_000 }), fc.array(call, { minLength: CALLS, maxLength: CALLS }))

class Reference {
  constructor() {
    const program = process.env.TIDEGATE_REFERENCE
    assert.ok(program, 'run this by ./scripts/npm, which builds the program of Rust')
    this.process = spawn(program, { stdio: ['pipe', 'pipe', 'inherit'] })
    this.lines = createInterface({ input: this.process.stdout })[Symbol.asyncIterator]()
  }

  async play(limits, start, calls) {
    this.process.stdin.write(`${JSON.stringify({ limits, name: 'game', start: start * 1e6, calls })}\n`)
    return JSON.parse((await this.lines.next()).value)
  }

  end() {
    this.process.stdin.end()
  }
}

const micros = (seconds) => (seconds === null ? null : Math.round(seconds * 1e6))

test('answers in memory are those of Rust', async () => {
  const reference = new Reference()
  let played = 0
  await fc.assert(
    fc.asyncProperty(games, async ([made, start, calls]) => {
      const expected = await reference.play(made, start, calls)
      let now = start * 1e6
      const limiter = new Limiter(made.map(([rate]) => rate), { algorithm: made[0][1], now: () => now / 1000 })
      for (const [index, [later, method, key, cost]] of calls.entries()) {
        now += later
        const answer = expected[index]
        const found = limiter[method](key, cost)
        played += 1
        if (method === 'reset') assert.deepEqual([found, answer], [undefined, null])
        else if (method === 'allow') assert.equal(found, answer.allowed)
        else {
          const [, limit, remaining, retry, resetAt] = answer.decided
          const expectedHere = [answer.allowed, limit, remaining, retry, resetAt, answer.delay]
          const foundHere = [found.allowed, found.limit, found.remaining, micros(found.retryAfter), micros(found.resetAt), micros(found.delay)]
          assert.deepEqual(foundHere, expectedHere, `call ${index}: ${method} ${JSON.stringify(key)} ${cost}`)
        }
      }
    }),
    { numRuns: GAMES, ...(IS_SHORT && { seed: 42 }) },
  )
  reference.end()
  assert.ok(played >= GAMES * CALLS)
  console.log(`${played} calls in memory, 0 differences`)
})
