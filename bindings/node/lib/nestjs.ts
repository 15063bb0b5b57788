// The storage of @nestjs/throttler.

import { prefixed } from './arguments.js'
import { countersFor, type KeyCounters } from './counters.js'
import type { AlgorithmName } from './limiter.js'
import { givenLimiter, hitsOf, waitOf, type StoreChoice } from './store_limiter.js'
import { sweepEvery, type Interval } from './waiting.js'

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

/** A key that is blocked, where that lasts longer or shorter than the window. */
interface Block {
  /** When it ends. Then the key has its whole limit again, unless a `limiter` counts. */
  until: number
  /** When its requests have left the window. */
  countedUntil: number
}

/** What a throttler asked for last. */
interface Asked {
  ttl: number
  limit: number
}

/** Counts for @nestjs/throttler, in memory or with a `RedisLimiter`. */
export class TidegateThrottlerStorage {
  readonly #counters: KeyCounters | undefined
  readonly #limiter: ReturnType<typeof givenLimiter>
  readonly #blocks = new Map<string, Block>()
  /** By throttlers' names. */
  readonly #asked = new Map<string, Asked>()
  #sweeping: Interval | undefined
  #isShutDown = false
  /** How often idle keys are forgotten, in milliseconds, under the name that it has in the built-in storage. @internal */
  protected readonly sweepIntervalMs: number = 60_000

  constructor(options: ThrottlerStorageOptions = {}) {
    this.#limiter = givenLimiter(options)
    this.#counters = this.#limiter === undefined ? countersFor(options.algorithm ?? 'sliding_window_log') : undefined
    // When a subclass is made, too. Not at the first request, whose context the timer would keep.
    queueMicrotask(() => {
      if (!this.#isShutDown) this.#sweeping = sweepEvery(this.sweepIntervalMs, this, (storage) => storage.evictIdleRecords())
    })
  }

  /** Counts a request. Times are milliseconds. */
  async increment(key: string, ttl: number, limit: number, blockDuration: number, throttlerName: string): Promise<ThrottlerRecord> {
    const now = Date.now()
    const name = named(key, throttlerName)
    const asked = this.#asked.get(throttlerName)
    if (asked === undefined) this.#asked.set(throttlerName, { ttl, limit })
    else [asked.ttl, asked.limit] = [ttl, limit]
    const hasBlock = blockDuration > 0 && blockDuration !== ttl
    if (hasBlock) {
      const block = this.#blocks.get(name)
      if (block !== undefined && block.until > now) return blocked(limit, block.until - now, block.until - now)
      if (block !== undefined) {
        this.#blocks.delete(name)
        // Counters of a `limiter` may be those of others, too, so they are not reset.
        if (limit >= 1 && ttl > 0) this.#counters?.reset(name, limit, ttl, now)
      }
    }
    const record = await this.#count(name, ttl, limit, now)
    if (hasBlock && record.isBlocked) {
      this.#block(name, now, { until: now + blockDuration, countedUntil: now + ttl })
      return { ...record, timeToBlockExpire: seconds(blockDuration) }
    }
    return record
  }

  /** Called by Nest when the application ends. */
  onApplicationShutdown(): void {
    this.#isShutDown = true
    clearInterval(this.#sweeping)
    this.#blocks.clear()
    this.#counters?.clear()
  }

  /** Forgets keys of which nothing counts, under the name that it has in the built-in storage. @internal */
  evictIdleRecords(now = Date.now()): void {
    this.#counters?.sweep(now)
    for (const [name, block] of this.#blocks) if (isOver(block, now)) this.#blocks.delete(name)
  }

  /** Which keys are counted or blocked, as far as tests of the built-in storage look at it. @internal */
  get storage(): { readonly size: number; has(key: string): boolean } {
    const now = Date.now()
    const isCounted = (name: string, { ttl, limit }: Asked): boolean => {
      if (this.#counters === undefined || !(ttl > 0) || !(limit >= 1)) return false
      this.#counters.peek(name, limit, ttl, now)
      return this.#counters.used > 0
    }
    const isBlocked = (name: string): boolean => (this.#blocks.get(name)?.until ?? 0) > now
    const onlyBlocked = [...this.#blocks.values()].filter(({ until, countedUntil }) => countedUntil <= now && now < until)
    return {
      size: (this.#counters?.size ?? 0) + onlyBlocked.length,
      has: (key) => [...this.#asked].some(([throttler, asked]) => isBlocked(named(key, throttler)) || isCounted(named(key, throttler), asked)),
    }
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

  #block(key: string, now: number, block: Block): void {
    this.#blocks.set(key, block)
    // Oldest first: blocks of one duration end in this order.
    for (const [other, older] of this.#blocks) {
      if (!isOver(older, now) && this.#blocks.size <= MAX_BLOCKS) break
      this.#blocks.delete(other)
    }
  }
}

/** The key of a throttler, which may have the same keys as another. */
function named(key: string, throttlerName: string | undefined): string {
  return prefixed(throttlerName === 'default' || throttlerName === undefined ? '' : `${throttlerName}:`, key)
}

/** Whether a block, and what was counted before it, has no meaning any more. */
function isOver({ until, countedUntil }: Block, now: number): boolean {
  return until <= now && countedUntil <= now
}

function blocked(limit: number, resets: number, retry: number): ThrottlerRecord {
  return { totalHits: limit + 1, timeToExpire: seconds(resets), isBlocked: true, timeToBlockExpire: Math.max(1, seconds(retry)) }
}

function seconds(millis: number): number {
  return Math.max(0, Math.ceil(millis / 1000))
}
