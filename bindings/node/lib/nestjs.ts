// The storage of @nestjs/throttler.

import { countersFor, type KeyCounters } from './counters.js'
import type { AlgorithmName } from './limiter.js'
import { givenLimiter, hitsOf, waitOf, type StoreChoice } from './store_limiter.js'

export interface ThrottlerStorageOptions extends StoreChoice {
  /** How to count: `sliding_window_log` by default, as the built-in storage. */
  algorithm?: AlgorithmName
}

/** What a throttler reads. Times are whole seconds, rounded up. */
export interface ThrottlerRecord {
  totalHits: number
  timeToExpire: number
  isBlocked: boolean
  timeToBlockExpire: number
}

/** How many blocked keys are remembered. */
const MAX_BLOCKS = 1_000_000

/** Counts for @nestjs/throttler, in memory or with a `RedisLimiter`. */
export class TidegateThrottlerStorage {
  readonly #counters: KeyCounters | undefined
  readonly #limiter: ReturnType<typeof givenLimiter>
  /** Until when keys are blocked, where that is longer or shorter than the window. */
  readonly #blocks = new Map<string, number>()

  constructor(options: ThrottlerStorageOptions = {}) {
    this.#limiter = givenLimiter(options)
    this.#counters = this.#limiter === undefined ? countersFor(options.algorithm ?? 'sliding_window_log') : undefined
  }

  /** Counts a request. Times are milliseconds. */
  async increment(key: string, ttl: number, limit: number, blockDuration: number, throttlerName: string): Promise<ThrottlerRecord> {
    const now = Date.now()
    // Two throttlers may have the same key.
    const name = throttlerName === 'default' || throttlerName === undefined ? key : `${throttlerName}:${key}`
    const hasBlock = blockDuration > 0 && blockDuration !== ttl
    if (hasBlock) {
      const until = this.#blocks.get(name)
      if (until !== undefined && until > now) return blocked(limit, until - now, until - now)
      if (until !== undefined) {
        this.#blocks.delete(name)
        await this.#reset(name, now)
      }
    }
    const record = await this.#count(name, ttl, limit, now)
    if (hasBlock && record.isBlocked) {
      this.#block(name, now, now + blockDuration)
      return { ...record, timeToBlockExpire: seconds(blockDuration) }
    }
    return record
  }

  /** Called by Nest when the application ends. */
  onApplicationShutdown(): void {
    this.#blocks.clear()
    this.#counters?.clear()
  }

  #count(key: string, ttl: number, limit: number, now: number): ThrottlerRecord | Promise<ThrottlerRecord> {
    if (this.#limiter !== undefined) return this.#ask(key, limit, now)
    if (!(limit >= 1)) return blocked(limit, ttl, ttl)
    if (!(ttl > 0)) return { totalHits: 1, timeToExpire: 0, isBlocked: false, timeToBlockExpire: 0 }
    const counters = this.#counters!
    const isAllowed = counters.charge(key, limit, ttl, now)
    const resets = counters.resetAt - now
    if (counters.countsDenied ? counters.used > limit : !isAllowed) return blocked(limit, resets, counters.countsDenied ? resets : counters.retry)
    return { totalHits: counters.used, timeToExpire: seconds(resets), isBlocked: false, timeToBlockExpire: 0 }
  }

  async #ask(key: string, limit: number, now: number): Promise<ThrottlerRecord> {
    const decision = await this.#limiter!.check(key)
    const resets = decision.resetAt * 1e3 - now
    if (!decision.allowed) return blocked(limit, resets, waitOf(decision, now))
    return { totalHits: hitsOf(decision, limit), timeToExpire: seconds(resets), isBlocked: false, timeToBlockExpire: 0 }
  }

  #reset(key: string, now: number): void | Promise<void> {
    return this.#limiter === undefined ? this.#counters!.reset(key, now) : this.#limiter.reset(key)
  }

  #block(key: string, now: number, until: number): void {
    this.#blocks.set(key, until)
    // Oldest first: blocks of one duration end in this order.
    for (const [other, end] of this.#blocks) {
      if (end > now && this.#blocks.size <= MAX_BLOCKS) break
      this.#blocks.delete(other)
    }
  }
}

function blocked(limit: number, resets: number, retry: number): ThrottlerRecord {
  return { totalHits: limit + 1, timeToExpire: seconds(resets), isBlocked: true, timeToBlockExpire: Math.max(1, seconds(retry)) }
}

function seconds(millis: number): number {
  return Math.max(0, Math.ceil(millis / 1000))
}
