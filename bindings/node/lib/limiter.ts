// A limiter in memory: one for each isolate. Every method but `acquire` answers without waiting.

import { checkCost, checkedTime, milliseconds, notAKey, shown } from './arguments.js'
import { readDecision, type Decision } from './decision.js'
import { LimitError, RateLimited } from './errors.js'
import { forgetAll, giveBack } from './internal.js'
import { Permit } from './permit.js'
import { Waiters, throwIfAborted, type AbortSource } from './waiting.js'
import { checked, freeWith, makeRoomForOutcomes, numbers, readHeaders, settleBuffers, wasm, write, writeSecret } from './wasm.js'

/** How a limit counts. */
export type AlgorithmName =
  | 'token_bucket'
  | 'leaky_bucket'
  | 'fixed_window'
  | 'sliding_window_log'
  | 'sliding_window_counter'
  | 'sliding_window_slots'
  | 'concurrency'

export interface LimiterOptions {
  /** How all limits count; without it a token bucket, or a fixed window if the window is a day or longer. */
  algorithm?: AlgorithmName
  /** How many keys are counted at the most: 1,000,000. Beyond, those that matter least are forgotten. */
  maxKeys?: number
  /** For how many milliseconds `acquire` waits at the most: 10,000. */
  maxWaitMs?: number
  /** Returns Unix milliseconds; `Date.now`, looked up at each call, if it is not given. */
  now?: () => number
}

export interface AcquireOptions {
  /** How much the request takes: 1. */
  cost?: number
  /** For how many milliseconds to wait at the most, and never longer than `maxWaitMs`. */
  timeoutMs?: number
  /** Ends the wait; what was reserved is given back. */
  signal?: AbortSource
}

export interface Stats {
  /** Keys that are counted, idle ones that were not yet removed among them. */
  keys: number
  /** Keys that were still in use and had to make room for others. */
  evictions: number
}

const RESERVED = 0
const ASK_AGAIN = 1
const TOO_LONG = 2

const systemTime = (): number => Date.now()

/** Limits requests by key: all limits allow a request, or none is charged. */
export class Limiter {
  readonly #limiter: number
  readonly #count: number
  readonly #now: () => number
  readonly #maxWaitMs: number
  readonly #holdsPermits: boolean
  readonly #waiters = new Waiters()
  #isOpen = false

  /** `limits` is a text such as `100/minute burst 20; 5/second`, or a list of such texts. */
  constructor(limits: string | readonly string[], options: LimiterOptions = {}) {
    const { algorithm = '', maxKeys = 1_000_000, now = systemTime } = options
    const text = limitsText(limits)
    if (typeof algorithm !== 'string') throw new LimitError(`\`${shown(algorithm)}\` is not an algorithm; give its name`)
    if (!Number.isInteger(maxKeys) || maxKeys < 1) throw new RangeError(`\`${shown(maxKeys)}\` is not a number of keys; give 1 or more`)
    if (typeof now !== 'function') throw new TypeError(`\`${shown(now)}\` is not a clock; give a function that returns Unix milliseconds`)
    this.#maxWaitMs = milliseconds('maxWaitMs', options.maxWaitMs, 10_000)
    const limitsLength = write(text)
    this.#limiter = checked(wasm.limiter_new(limitsLength, write(text + algorithm), maxKeys))
    freeWith(this, this.#limiter)
    this.#count = wasm.limiter_count(this.#limiter)
    makeRoomForOutcomes(this.#count)
    this.#now = now
    this.#holdsPermits = algorithm === 'concurrency'
  }

  /** Charges a request to `key` if all limits allow it. Cost 0 takes nothing. */
  check(key: string, cost = 1): Decision {
    const length = this.#write(key, cost)
    const code = wasm.limiter_check(this.#limiter, length, cost, this.#time())
    return readDecision(this, this.#count, code, this.#holdsPermits ? this.#permit() : null)
  }

  /** Charges a request to `key` if all limits allow it: `check` without an object. */
  allow(key: string, cost = 1): boolean {
    const length = this.#write(key, cost)
    return wasm.limiter_allow(this.#limiter, length, cost, this.#time()) === 1
  }

  /** What `check` would answer, without charging anything. */
  peek(key: string, cost = 1): Decision {
    const length = this.#write(key, cost)
    const code = wasm.limiter_peek(this.#limiter, length, cost, this.#time())
    return readDecision(this, this.#count, code, null)
  }

  /** Charges a cost that is known only afterwards, without asking: as much of it as fits into a full quota. */
  settle(key: string, cost: number): Decision {
    const length = this.#write(key, cost)
    const code = wasm.limiter_settle(this.#limiter, length, cost, this.#time())
    return readDecision(this, this.#count, code, null)
  }

  /** Forgets what `key` has used. */
  reset(key: string): void {
    const length = this.#write(key, 0)
    wasm.limiter_reset(this.#limiter, length, this.#time())
    this.#waiters.wake()
  }

  /** How many keys there are, and how many had to be forgotten. */
  stats(): Stats {
    wasm.limiter_stats(this.#limiter)
    settleBuffers()
    return { keys: numbers[0]!, evictions: numbers[1]! }
  }

  /**
   * Waits until `key` may go on; rejects with `RateLimited` if that would take longer than may be waited. A token bucket
   * reserves its turn immediately, so that callers go on in the order in which they came.
   */
  async acquire(key: string, options: AcquireOptions = {}): Promise<Permit> {
    const { cost = 1, signal } = options
    const maxWaitMs = Math.min(milliseconds('timeoutMs', options.timeoutMs, this.#maxWaitMs), this.#maxWaitMs)
    throwIfAborted(signal)
    const began = this.#time()
    let now = began
    // What timers have waited for counts, too: the clock may stand still.
    let waitedMs = 0
    for (;;) {
      const length = this.#write(key, cost)
      const leftMs = Math.max(0, maxWaitMs - Math.max(now - began, waitedMs))
      const result = wasm.limiter_reserve(this.#limiter, length, cost, leftMs, now)
      const [kind, code] = [result & 3, result >>> 2]
      const waitMs = wasm.attempt_wait() / 1e3
      if (kind === RESERVED) {
        const turn = wasm.attempt_turn()
        const permit = new Permit(readDecision(this, this.#count, code, null), this.#release())
        await this.#takeTurn(turn, now + waitMs, signal)
        return permit
      }
      if (kind !== ASK_AGAIN) {
        const decision = readDecision(this, this.#count, code, null)
        throw tooLong(decision, kind === TOO_LONG ? waitMs : undefined)
      }
      if (!(await this.#waiters.wait(waitMs, signal, true))) waitedMs += Math.max(1, waitMs)
      now = this.#time()
    }
  }

  /** @internal */
  describe(name: string, outcomes: ArrayLike<number>): [string, string][] {
    const length = write(name)
    settleBuffers()
    numbers.set(outcomes)
    return readHeaders(wasm.limiter_headers(this.#limiter, length))
  }

  /** @internal */
  [giveBack](key: string, cost: number, chargedAt: number): void {
    const length = this.#write(key, cost)
    wasm.limiter_give_back(this.#limiter, length, cost, chargedAt, this.#time())
  }

  /** @internal */
  [forgetAll](): void {
    this.#open()
    wasm.limiter_clear(this.#limiter)
  }

  /** Waits for a turn that was reserved. It is given back if the wait is aborted. */
  async #takeTurn(turn: number, due: number, signal: AbortSource | undefined): Promise<void> {
    try {
      await this.#waiters.until(due, () => this.#time(), signal)
    } catch (reason) {
      wasm.turn_give_back(this.#limiter, turn, this.#time())
      this.#waiters.wake()
      throw reason
    }
    wasm.turn_take(turn)
  }

  #permit(): Permit | null {
    const release = this.#release()
    return release === null ? null : new Permit(null, release)
  }

  /** What releases the permit of the last answer; none if it holds none. */
  #release(): (() => boolean) | null {
    const permit = wasm.permit()
    if (permit === 0) return null
    return () => {
      const wasHeld = wasm.limiter_release(this.#limiter, permit, this.#time()) === 1
      this.#waiters.wake()
      return wasHeld
    }
  }

  #write(key: string, cost: number): number {
    if (typeof key !== 'string') throw notAKey(key)
    if (cost !== 1) checkCost(cost)
    if (!this.#isOpen) this.#open()
    return write(key)
  }

  /** Not before the first call: some runtimes have no random numbers while modules are loaded. */
  #open(): void {
    if (this.#isOpen) return
    writeSecret()
    wasm.limiter_open(this.#limiter)
    this.#isOpen = true
  }

  #time(): number {
    const now = this.#now()
    return now > 0 ? now : Math.max(0, checkedTime(now))
  }
}

/** Limits as one text. */
export function limitsText(limits: string | readonly string[]): string {
  const texts = typeof limits === 'string' ? [limits] : limits
  if (!Array.isArray(texts) || !texts.every((text) => typeof text === 'string')) {
    throw new LimitError(`\`${shown(limits)}\` is not a limit; give a text such as \`100/minute\`, or a list of them`)
  }
  return texts.join('; ')
}

/** Why there is no turn: it would take so many milliseconds, or forever. */
export function tooLong(decision: Decision, waitMs: number | undefined): RateLimited {
  return new RateLimited(
    waitMs === undefined
      ? `the cost is above the limit of ${decision.limit}, so waiting cannot help`
      : `the limit would let this go on only after ${(waitMs / 1000).toFixed(3)} s; try again then, or raise \`maxWaitMs\``,
    decision,
  )
}
