// Counters in memory for the stores of other libraries, which bring a limit and a window with each call.

import { notAKey, shown } from './arguments.js'
import { LimitError } from './errors.js'
import type { AlgorithmName } from './limiter.js'
import { checked, freeWith, numbers, settleBuffers, wasm, write, writeSecret } from './wasm.js'

/** The most that a window counts. Fixed windows count denied requests, too, so that their limit is above any other. */
const MAX_COUNT = 1_000_000_000
const MAX_KEYS = 1_000_000

/** What a key has used. Times are milliseconds. */
export interface Usage {
  allowed: boolean
  used: number
  /** When all of it is free again. */
  resetAt: number
  /** How long until the request would be allowed; zero if it was. */
  retry: number
  /** When it was charged. */
  at: number
}

/** Counts keys by one algorithm, in windows and with limits that may differ from call to call. */
export class Counters {
  readonly algorithm: AlgorithmName
  /** Whether denied requests count, as in the built-in stores with a fixed window. */
  readonly countsDenied: boolean
  readonly #limiter: number
  #count = 1
  #windowMs = 1000
  #isOpen = false

  constructor(algorithm: AlgorithmName) {
    if (typeof algorithm !== 'string') throw new LimitError(`\`${shown(algorithm)}\` is not an algorithm; give its name`)
    if (algorithm === 'concurrency') {
      throw new LimitError('`concurrency` counts requests in progress, which this store does not see the end of; give another algorithm')
    }
    this.algorithm = algorithm
    this.countsDenied = algorithm === 'fixed_window'
    this.#limiter = checked(wasm.store_new(write(algorithm), MAX_KEYS))
    freeWith(this, this.#limiter)
  }

  /** Counts `limit` in `windowMs` from now on. Throws if that is no limit. */
  set(limit: number, windowMs: number): void {
    const count = this.countsDenied ? MAX_COUNT : limit
    if (count === this.#count && windowMs === this.#windowMs) return
    if (typeof count !== 'number' || !(count <= MAX_COUNT)) throw new LimitError(`\`${shown(count)}\` is not a limit; give at most ${MAX_COUNT}`)
    checked(wasm.limiter_set(this.#limiter, Math.floor(count), windowMs))
    this.#count = count
    this.#windowMs = windowMs
  }

  /** Counts a request, if it is allowed. */
  charge(key: string, now: number): Usage {
    const length = this.#write(key)
    return this.#usage(wasm.limiter_check(this.#limiter, length, 1, now), now)
  }

  /** What a key has used; nothing if it has used nothing. */
  peek(key: string, now: number): Usage | undefined {
    const length = this.#write(key)
    const usage = this.#usage(wasm.limiter_peek(this.#limiter, length, 1, now), now)
    return usage.used === 0 ? undefined : usage
  }

  reset(key: string, now: number): void {
    const length = this.#write(key)
    wasm.limiter_reset(this.#limiter, length, now)
  }

  clear(): void {
    if (this.#isOpen) wasm.limiter_clear(this.#limiter)
  }

  /** Takes one request back, which was charged at this time. */
  giveBack(key: string, chargedAt: number, now: number): void {
    const length = this.#write(key)
    wasm.limiter_give_back(this.#limiter, length, 1, chargedAt, now)
  }

  #usage(code: number, now: number): Usage {
    settleBuffers()
    const retry = numbers[3]!
    return {
      allowed: (code & 1) === 1,
      used: numbers[1]! - numbers[2]!,
      resetAt: numbers[4]! / 1e3,
      retry: retry / 1e3,
      at: Math.max(now, numbers[6]! / 1e3),
    }
  }

  /** The built-in stores count numbers, too; a missing identity must not become a counter that clients share. */
  #write(key: string): number {
    if (typeof key !== 'string') {
      if (typeof key !== 'number' && typeof key !== 'bigint') throw notAKey(key)
      key = String(key)
    }
    if (!this.#isOpen) {
      writeSecret()
      wasm.limiter_open(this.#limiter)
      this.#isOpen = true
    }
    return write(key)
  }
}
