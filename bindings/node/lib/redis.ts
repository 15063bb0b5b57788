// A limiter whose counters are in Redis, by the client of the application and the keys and the script of the server: both
// count the same.

import script from '#script'
import { LONGEST_TIMER, checkCost, milliseconds, notAKey, shown } from './arguments.js'
import { chargedBy } from './charged.js'
import { Decision, readDecision } from './decision.js'
import { RateLimited, StoreError } from './errors.js'
import { giveBack } from './internal.js'
import { limitsText, tooLong, type AcquireOptions, type AlgorithmName } from './limiter.js'
import { withReplyLines } from './redis_reply.js'
import { SharedPermit } from './permit.js'
import { Waiters, throwIfAborted } from './waiting.js'
import { checked, freeWireWith, makeRoomForOutcomes, numbers, readHeaders, readText, settleBuffers, wasm, write, writeWithRandom } from './wasm.js'

/** Sends a command to Redis: `(...words) => redis.call(...words)` of ioredis, `(...words) => client.sendCommand(words)` of node-redis. */
export type SendCommand = (...words: [command: string, ...words: string[]]) => Promise<unknown>

export interface RedisLimiterOptions {
  sendCommand: SendCommand
  /** The id of the rule on servers that count the same: `limiter` if it is not given. */
  name?: string
  /** The attribute that the rule counts by, and whose values keys are: `user_id`. */
  perAttribute?: string
  /** How all limits count; without it as in rules. */
  algorithm?: AlgorithmName
  /** The namespace of the servers. */
  namespace?: string
  /** The secret of the servers, under which long and secret keys are hashed. */
  keySecret?: string
  /** For how many milliseconds an answer is waited for: 100. */
  timeoutMs?: number
  /** For how many milliseconds `acquire` waits at the most: 10,000. */
  maxWaitMs?: number
  /** What happens if Redis does not answer: `throw`, `allow` or `deny`. */
  onStoreFailure?: 'throw' | 'allow' | 'deny'
}

const CHECK = 0
const PEEK = 1
const SETTLE = 2
const FORGET = 3
/** How often Redis is asked again for a permit, in milliseconds: another process cannot report that it released one. */
const ASK_EVERY = 50

const DENIED_BY_HOLDERS = 1
const HOLDS_PERMIT = 2
const WAS_LIVE = 4
const WAS_REFUSED = 8

/** Limits requests by key, with counters that processes and servers share in Redis. */
export class RedisLimiter {
  readonly #limiter: number
  readonly #count: number
  readonly #sendCommand: SendCommand
  readonly #timeoutMs: number
  readonly #maxWaitMs: number
  readonly #onStoreFailure: 'throw' | 'allow' | 'deny'
  readonly #holdsPermits: boolean
  readonly #waiters = new Waiters()

  constructor(limits: string | readonly string[], options: RedisLimiterOptions) {
    // Programs that are not checked by TypeScript may leave the options out.
    const given: Partial<RedisLimiterOptions> = options ?? {}
    const { sendCommand, name = 'limiter', perAttribute = 'user_id', algorithm = '', namespace = '', keySecret = '', onStoreFailure = 'throw' } = given
    if (typeof sendCommand !== 'function') throw new TypeError(`\`${shown(sendCommand)}\` is not a value of \`sendCommand\`; give a function that sends a command to Redis`)
    for (const [option, text] of Object.entries({ name, perAttribute, algorithm, namespace, keySecret })) {
      if (typeof text !== 'string' || (option !== 'keySecret' && text.includes('\n'))) throw new TypeError(`\`${shown(text)}\` is not a value of \`${option}\`; give a string`)
    }
    if (name === '' || perAttribute === '') throw new RangeError('`name` and `perAttribute` have at least one letter')
    if (!['throw', 'allow', 'deny'].includes(onStoreFailure)) {
      throw new RangeError(`\`${shown(onStoreFailure)}\` is not a value of \`onStoreFailure\`; expected one of \`throw\`, \`allow\`, \`deny\``)
    }
    const text = [limitsText(limits).replaceAll('\n', ' '), algorithm, name, perAttribute, namespace, keySecret].join('\n')
    this.#limiter = checked(wasm.wire_new(write(text)))
    freeWireWith(this, this.#limiter)
    this.#count = wasm.wire_count(this.#limiter)
    makeRoomForOutcomes(this.#count)
    this.#sendCommand = sendCommand
    this.#timeoutMs = Math.min(milliseconds('timeoutMs', given.timeoutMs, 100), LONGEST_TIMER)
    this.#maxWaitMs = milliseconds('maxWaitMs', given.maxWaitMs, 10_000)
    this.#onStoreFailure = onStoreFailure
    this.#holdsPermits = algorithm === 'concurrency'
  }

  /** Charges a request to `key` if all limits allow it. Cost 0 takes nothing. */
  async check(key: string, cost = 1): Promise<Decision> {
    return this.#decide(CHECK, key, cost)
  }

  /** Charges a request to `key` if all limits allow it: `check` without an object. */
  async allow(key: string, cost = 1): Promise<boolean> {
    return (await this.#decide(CHECK, key, cost)).allowed
  }

  /** What `check` would answer, without charging anything. */
  async peek(key: string, cost = 1): Promise<Decision> {
    return this.#decide(PEEK, key, cost)
  }

  /** Charges a cost that is known only afterwards, without asking: as much of it as fits into a full quota. */
  async settle(key: string, cost: number): Promise<Decision> {
    return this.#decide(SETTLE, key, cost)
  }

  /** Forgets what `key` has used. */
  async reset(key: string): Promise<void> {
    await this.#unlessFailed(() => this.#run(this.#begin(FORGET, key, 0, -1)))
    this.#waiters.wake()
  }

  /** As that of `Limiter`, but the keys of a Redis that others use, too, are not counted. */
  async stats(): Promise<{ keys: null; evictions: null }> {
    return { keys: null, evictions: null }
  }

  /** Waits until `key` may go on, as that of `Limiter` does. A permit that another process releases is noticed within 50 ms. */
  async acquire(key: string, options: AcquireOptions = {}): Promise<SharedPermit> {
    const { cost = 1, signal } = options
    const maxWaitMs = Math.min(milliseconds('timeoutMs', options.timeoutMs, this.#maxWaitMs), this.#maxWaitMs)
    throwIfAborted(signal)
    const deadline = performance.now() + maxWaitMs
    for (;;) {
      const leftMs = Math.max(0, deadline - performance.now())
      const step = this.#begin(CHECK, key, cost, leftMs)
      let code: number
      try {
        code = await this.#answer(step)
      } catch (error) {
        wasm.step_free(step)
        const decision = this.#withoutStore(error)
        if (decision.allowed) return new SharedPermit(decision, null)
        throw new RateLimited('Redis did not answer, and `onStoreFailure` is `deny`', decision)
      }
      const decision = readDecision(this, this.#count, code, null)
      const wait = wasm.step_wait(step)
      const waitMs = wait / 1e3
      if (decision.allowed && waitMs <= leftMs) {
        try {
          await this.#waiters.until(performance.now() + waitMs, () => performance.now(), signal)
        } catch (reason) {
          await this.#undo(step)
          throw reason
        }
        return new SharedPermit(decision, this.#releaseOf(step))
      }
      const mayBeFreed = (wasm.step_flags(step) & DENIED_BY_HOLDERS) !== 0 && leftMs > 0
      await this.#undo(step)
      if (wait < 0 || (waitMs > leftMs && !mayBeFreed)) throw tooLong(await this.peek(key, cost), wait < 0 ? undefined : waitMs)
      await this.#waiters.wait(Math.min(waitMs, leftMs, mayBeFreed ? ASK_EVERY : Infinity), signal, mayBeFreed)
    }
  }

  /** @internal */
  describe(name: string, outcomes: ArrayLike<number>): [string, string][] {
    const length = write(name)
    settleBuffers()
    numbers.set(outcomes)
    return readHeaders(wasm.wire_headers(this.#limiter, length))
  }

  /** @internal */
  async [giveBack](key: string, cost: number, chargedAt: number): Promise<void> {
    if (typeof key !== 'string') throw notAKey(key)
    const length = write(key)
    await this.#unlessFailed(() => this.#run(wasm.wire_take_back(this.#limiter, length, cost, chargedAt)))
  }

  async #decide(asked: number, key: string, cost: number): Promise<Decision> {
    const step = this.#begin(asked, key, cost, -1)
    let isKept = false
    try {
      const code = await this.#answer(step)
      isKept = this.#holdsPermits && (wasm.step_flags(step) & HOLDS_PERMIT) !== 0
      return readDecision(this, this.#count, code, isKept ? new SharedPermit(null, this.#releaseOf(step)) : null)
    } catch (error) {
      return this.#withoutStore(error)
    } finally {
      if (!isKept) wasm.step_free(step)
    }
  }

  #begin(asked: number, key: string, cost: number, maxWaitMs: number): number {
    if (typeof key !== 'string') throw notAKey(key)
    if (cost !== 1) checkCost(cost)
    return wasm.wire_ask(this.#limiter, asked, writeWithRandom(key, this.#holdsPermits && asked === CHECK), cost, maxWaitMs)
  }

  /** Runs a step, and forgets it. Answers whether it released a permit. */
  async #run(step: number): Promise<boolean> {
    if (step < 0) return false
    try {
      await this.#answer(step)
      return (wasm.step_flags(step) & WAS_LIVE) !== 0
    } finally {
      wasm.step_free(step)
    }
  }

  /** Gives back what a step has charged, as far as Redis answers, and forgets the step. */
  async #undo(step: number): Promise<void> {
    const undoing = wasm.wire_give_back(this.#limiter, step)
    wasm.step_free(step)
    // Without an answer it flows back by itself.
    await this.#run(undoing).catch(() => false)
    this.#waiters.wake()
  }

  #releaseOf(step: number): (() => Promise<boolean>) | null {
    if ((wasm.step_flags(step) & HOLDS_PERMIT) === 0) {
      wasm.step_free(step)
      return null
    }
    return async () => {
      const releasing = wasm.wire_release(this.#limiter, step)
      wasm.step_free(step)
      const wasHeld = await this.#unlessFailed(() => this.#run(releasing))
      this.#waiters.wake()
      return wasHeld ?? false
    }
  }

  /** Sends the command of a step, and reads the reply. */
  async #answer(step: number): Promise<number> {
    const words = readText(wasm.step_arguments(step)).split('\n')
    const reply = await this.#within(this.#call(words))
    return withReplyLines(reply, (lines) => {
      const code = wasm.step_read(step, write(lines))
      if (code >= 0) return code
      const problem = readText(-code)
      const wasRefused = (wasm.step_flags(step) & WAS_REFUSED) !== 0
      throw new StoreError(wasRefused ? `Redis could not decide: ${problem}` : `Redis gave an answer that is none of the script: ${problem}`, wasRefused ? false : null)
    })
  }

  async #call(words: string[]): Promise<unknown> {
    try {
      return await this.#sendCommand('EVALSHA', script.sha1, ...words)
    } catch (error) {
      // The server has not seen the script yet, or has forgotten it.
      if (!String((error as Error | undefined)?.message).includes('NOSCRIPT')) throw error
      return this.#sendCommand('EVAL', script.text, ...words)
    }
  }

  async #within(call: Promise<unknown>): Promise<unknown> {
    let timer: ReturnType<typeof setTimeout> | undefined
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new StoreError(`Redis did not answer within ${this.#timeoutMs} ms`, null)), this.#timeoutMs)
    })
    try {
      return await Promise.race([call, late])
    } catch (error) {
      if (error instanceof StoreError) throw error
      throw new StoreError(`Redis could not decide: ${(error as Error | undefined)?.message ?? shown(error)}`, chargedBy(error), { cause: error })
    } finally {
      clearTimeout(timer)
    }
  }

  /** The decision without Redis. Throws what went wrong if it is to be known. */
  #withoutStore(error: unknown): Decision {
    if (this.#onStoreFailure === 'throw' || !(error instanceof StoreError)) throw error
    const isAllowed = this.#onStoreFailure === 'allow'
    const now = Date.now() * 1e3
    return new Decision(null, isAllowed, [Number(isAllowed), 0, 0, isAllowed ? 0 : 1e6, now, 0, now], 0, null, null)
  }

  async #unlessFailed<T>(call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call()
    } catch (error) {
      if (this.#onStoreFailure === 'throw' || !(error instanceof StoreError)) throw error
      return undefined
    }
  }
}
