// Counters in memory for the stores of other libraries, which bring a limit and a window with each call.

import { notAKey, shown } from './arguments.js'
import { LimitError } from './errors.js'
import { FixedWindows } from './fixed_windows.js'
import type { AlgorithmName } from './limiter.js'
import { checked, freeWith, numbers, settleBuffers, wasm, write, writeSecret } from './wasm.js'

const MAX_COUNT = 1_000_000_000
const MAX_KEYS = 1_000_000

/** What stores count with. Answers are read from its fields, so that no object is made for each request. */
export interface KeyCounters {
  readonly algorithm: AlgorithmName
  /** Whether denied requests count, as in the built-in stores with a fixed window. */
  readonly countsDenied: boolean
  /** Of the last answer: what the key has used. */
  readonly used: number
  /** Of the last answer: when all of it is free again, in Unix milliseconds. */
  readonly resetAt: number
  /** Of the last answer: milliseconds until the request would be allowed. */
  readonly retry: number
  /** Of the last answer: when it was decided, in Unix milliseconds. */
  readonly at: number
  /** Of the last answer: `resetAt` as a date. */
  readonly resetTime: Date
  /** Counts a request if it is allowed, and answers whether it is. Throws if that is no limit. */
  charge(key: string, limit: number, windowMs: number, now: number): boolean
  /** Answers whether a request would be allowed. */
  peek(key: string, limit: number, windowMs: number, now: number): boolean
  /** Takes one request back, which was charged at this time. */
  giveBack(key: string, chargedAt: number, windowMs: number, now: number): void
  /** Forgets what a key has used of this limit. */
  reset(key: string, limit: number, windowMs: number, now: number): void
  clear(): void
  /** Forgets keys that have used nothing that still counts. */
  sweep(now: number): void
  /** How many keys are counted, idle ones that were not yet swept among them. */
  readonly size: number
}

/** Counters for the algorithm that a store is given. */
export function countersFor(algorithm: AlgorithmName): KeyCounters {
  return algorithm === 'fixed_window' ? new FixedWindows() : new Counters(algorithm)
}

/** Counts keys by one algorithm, in windows and with limits that may differ from call to call. */
export class Counters implements KeyCounters {
  readonly algorithm: AlgorithmName
  readonly countsDenied = false
  used = 0
  resetAt = 0
  retry = 0
  at = 0
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
    this.#limiter = checked(wasm.store_new(write(algorithm), MAX_KEYS))
    freeWith(this, this.#limiter)
  }

  charge(key: string, limit: number, windowMs: number, now: number): boolean {
    if (limit !== this.#count || windowMs !== this.#windowMs) this.set(limit, windowMs)
    const length = this.#write(key)
    return this.#read(wasm.limiter_check(this.#limiter, length, 1, now))
  }

  peek(key: string, limit: number, windowMs: number, now: number): boolean {
    if (limit !== this.#count || windowMs !== this.#windowMs) this.set(limit, windowMs)
    const length = this.#write(key)
    return this.#read(wasm.limiter_peek(this.#limiter, length, 1, now))
  }

  get resetTime(): Date {
    return new Date(this.resetAt)
  }

  /** Counts `limit`, or the largest that can be counted, in `windowMs` from now on. Throws if that is no limit. */
  set(limit: number, windowMs: number): void {
    if (typeof limit !== 'number' || Number.isNaN(limit)) throw new LimitError(`\`${shown(limit)}\` is not a limit; give a number`)
    checked(wasm.limiter_set(this.#limiter, Math.floor(Math.min(limit, MAX_COUNT)), windowMs))
    this.#count = limit
    this.#windowMs = windowMs
  }

  giveBack(key: string, chargedAt: number, _windowMs: number, now: number): void {
    const length = this.#write(key)
    wasm.limiter_give_back(this.#limiter, length, 1, chargedAt, now)
  }

  reset(key: string, limit: number, windowMs: number, now: number): void {
    if (limit !== this.#count || windowMs !== this.#windowMs) this.set(limit, windowMs)
    const length = this.#write(key)
    wasm.limiter_reset(this.#limiter, length, now)
  }

  clear(): void {
    if (this.#isOpen) wasm.limiter_clear(this.#limiter)
  }

  sweep(now: number): void {
    if (this.#isOpen) wasm.limiter_sweep(this.#limiter, now)
  }

  get size(): number {
    wasm.limiter_stats(this.#limiter)
    settleBuffers()
    return numbers[0]!
  }

  #read(code: number): boolean {
    settleBuffers()
    this.used = numbers[1]! - numbers[2]!
    this.resetAt = numbers[4]! / 1e3
    this.retry = numbers[3]! / 1e3
    this.at = numbers[6]! / 1e3
    return code === 1
  }

  #write(key: string): number {
    if (typeof key !== 'string') throw notAKey(key)
    if (!this.#isOpen) {
      writeSecret()
      wasm.limiter_open(this.#limiter)
      this.#isOpen = true
    }
    return write(key)
  }
}
