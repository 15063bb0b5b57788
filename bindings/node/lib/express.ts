// The store of express-rate-limit, and of hono-rate-limiter, whose stores have the same methods.

import { prefixed } from './arguments.js'
import { Counters, countersFor, type KeyCounters } from './counters.js'
import { LimitError } from './errors.js'
import { FixedWindows, type OpenWindow } from './fixed_windows.js'
import { forgetAll, giveBack } from './internal.js'
import type { AlgorithmName } from './limiter.js'
import { andThen, givenLimiter, hitsOf, timeOf, waitOf, wasCharged, type Eventually, type StoreChoice } from './store_limiter.js'
import { Uncharged } from './uncharged.js'
import { sweepEvery, type Interval } from './waiting.js'

export interface TidegateStoreOptions extends StoreChoice {
  /** How to count: `fixed_window` by default, which counts denied requests as `MemoryStore` does. */
  algorithm?: AlgorithmName
  /** What keys begin with, to tell stores apart that share a `limiter`. */
  prefix?: string
}

/** What a store reads of the options of the rate limiter. */
export interface RateLimitOptions {
  windowMs: number
  limit?: unknown
  max?: unknown
  skipFailedRequests?: boolean
  skipSuccessfulRequests?: boolean
}

export interface HitInfo {
  /** Requests so far; more than the limit if this one is denied. */
  totalHits: number
  /** When the window ends; if denied by another algorithm, when a retry is allowed. */
  resetTime: Date
}

/** How many charges are remembered that may be taken back. */
const MAX_CHARGES = 100_000

/** Counts for express-rate-limit and hono-rate-limiter, in memory or with a `RedisLimiter`. */
export class TidegateStore {
  /** What keys begin with. */
  readonly prefix: string
  /** Whether no other store counts the same keys. */
  readonly localKeys: boolean
  /** The timer that forgets idle keys, under the name that it has in `MemoryStore`. @internal */
  interval: Interval | undefined
  readonly #counters: KeyCounters | undefined
  /** The same, if they are fixed windows. */
  readonly #windows: FixedWindows | undefined
  /** The same, if each key is counted as it is: what nearly all stores do. */
  #plainWindows: FixedWindows | undefined
  readonly #limiter: ReturnType<typeof givenLimiter>
  /** When keys were last charged, if requests may be taken back and that depends on it. */
  readonly #charges = new Map<string, number>()
  /** Requests that were not charged, if requests may be taken back. */
  readonly #uncharged = new Uncharged(MAX_CHARGES)
  #limit = 5
  #windowMs = 60_000
  /** Whether there is anything to count: a limit of nothing denies without. */
  #isCounted = true
  #remembersCharges = false
  /** Why the options are refused, for callers that only log what `init` throws. */
  #problem: Error | undefined

  constructor(options: TidegateStoreOptions = {}) {
    this.#limiter = givenLimiter(options)
    this.#counters = this.#limiter === undefined ? countersFor(options.algorithm ?? 'fixed_window') : undefined
    this.#windows = this.#counters instanceof FixedWindows ? this.#counters : undefined
    this.prefix = options.prefix ?? ''
    this.localKeys = this.#limiter === undefined
    this.#plainWindows = this.prefix === '' ? this.#windows : undefined
  }

  /** Called by the rate limiter with its options. */
  init(options: RateLimitOptions): void {
    const limit = options.limit ?? options.max
    const name = this.#counters?.algorithm ?? 'limiter'
    this.#problem = undefined
    this.#plainWindows = undefined
    this.#windowMs = options.windowMs
    try {
      if (this.#counters?.countsDenied !== true) {
        if (typeof limit === 'function') {
          throw new LimitError(`a \`limit\` that is a function needs the algorithm \`fixed_window\`, and not \`${name}\`; give a number, or leave that out`)
        }
        if (limit !== undefined && (typeof limit !== 'number' || Number.isNaN(limit))) throw new LimitError(`\`${String(limit)}\` is not a limit; give a number`)
      }
      if (typeof limit === 'number') this.#limit = Math.floor(limit)
      this.#isCounted = this.#windowMs > 0 && (this.#limit >= 1 || this.#counters?.countsDenied === true)
      if (this.#isCounted && this.#counters instanceof Counters) this.#counters.set(this.#limit, this.#windowMs)
    } catch (error) {
      this.#problem = error as Error
      throw error
    }
    const mayTakeBack = options.skipFailedRequests === true || options.skipSuccessfulRequests === true
    this.#remembersCharges = mayTakeBack && this.#counters?.countsDenied !== true
    this.#plainWindows = this.#isCounted && this.prefix === '' ? this.#windows : undefined
    if (this.interval !== undefined) clearInterval(this.interval)
    this.interval = this.#isCounted && this.#counters !== undefined ? sweepEvery(this.#windowMs, this.#counters, (counters) => counters.sweep(Date.now())) : undefined
    if (this.#windows !== undefined) this.#windows.isSwept = this.interval !== undefined
  }

  /** Keys of this window, as in `MemoryStore`; none unless windows are fixed. @internal */
  get current(): ReadonlyMap<string, OpenWindow> {
    return this.#windows?.maps[0] ?? new Map()
  }

  /** Keys of the window before. @internal */
  get previous(): ReadonlyMap<string, OpenWindow> {
    return this.#windows?.maps[1] ?? new Map()
  }

  /** Counts a request of a key. */
  increment(key: string): Eventually<HitInfo> {
    const now = Date.now()
    if (this.#plainWindows !== undefined) return this.#plainWindows.hit(key, this.#windowMs, now)
    if (this.#problem !== undefined) throw this.#problem
    const name = this.#named(key)
    if (this.#windows !== undefined && this.#isCounted) return this.#windows.hit(name, this.#windowMs, now)
    const counters = this.#counters
    if (counters === undefined) return this.#ask(name, now)
    if (!this.#isCounted) return { totalHits: this.#windowMs > 0 ? this.#limit + 1 : 1, resetTime: new Date(now + this.#windowMs) }
    const isAllowed = counters.charge(name, this.#limit, this.#windowMs, now)
    if (!isAllowed) {
      if (this.#remembersCharges) this.#uncharged.add(name, now + counters.retry, now)
      return { totalHits: this.#limit + 1, resetTime: new Date(now + counters.retry) }
    }
    if (this.#remembersCharges) this.#remember(name, counters.at)
    return { totalHits: counters.used, resetTime: counters.resetTime }
  }

  /** Takes back a request of a key. A denied one has charged nothing, but the frameworks take it back as any other. */
  decrement(key: string): Eventually<void> {
    const [now, name] = [Date.now(), this.#named(key)]
    if (this.#uncharged.take(name, now)) return
    const chargedAt = this.#charges.get(name)
    this.#charges.delete(name)
    if (this.#counters === undefined) return this.#limiter![giveBack](name, 1, chargedAt ?? now)
    // A moment later, so that it is certainly after a reset of the same instant.
    if (this.#isCounted) this.#counters.giveBack(name, chargedAt ?? now + 0.001, this.#windowMs, now)
  }

  /** What a key has used; nothing if it has used nothing. */
  get(key: string): Eventually<HitInfo | undefined> {
    const [now, name] = [Date.now(), this.#named(key)]
    if (this.#counters === undefined) {
      return andThen(this.#limiter!.peek(name, 0), (decision) => {
        const totalHits = Math.max(0, this.#limit - decision.remaining)
        return totalHits === 0 ? undefined : { totalHits, resetTime: new Date(decision.resetAt * 1e3) }
      })
    }
    if (!this.#isCounted) return undefined
    if (this.#windows !== undefined) return this.#windows.find(name, this.#windowMs, now)
    this.#counters.peek(name, this.#limit, this.#windowMs, now)
    const { used, resetTime } = this.#counters
    return used === 0 ? undefined : { totalHits: used, resetTime }
  }

  /** Forgets what a key has used. */
  resetKey(key: string): Eventually<void> {
    const name = this.#named(key)
    this.#charges.delete(name)
    this.#uncharged.delete(name)
    if (this.#counters === undefined) return this.#limiter!.reset(name)
    if (this.#isCounted) this.#counters.reset(name, this.#limit, this.#windowMs, Date.now())
  }

  /** Forgets what all keys have used. */
  resetAll(): Eventually<void> {
    this.#charges.clear()
    this.#uncharged.clear()
    if (this.#limiter === undefined) return this.#counters!.clear()
    if (this.#limiter[forgetAll] === undefined) return Promise.reject(new TypeError('counters in Redis are shared with others; reset keys one by one'))
    this.#limiter[forgetAll]()
  }

  /** Frees the memory of counters of its own, and ends the timer. */
  shutdown(): void {
    clearInterval(this.interval)
    if (this.#windows !== undefined) this.#windows.isSwept = false
    this.#charges.clear()
    this.#uncharged.clear()
    this.#counters?.clear()
  }

  #ask(name: string, now: number): Eventually<HitInfo> {
    return andThen(this.#limiter!.check(name), (decision) => {
      const resetTime = new Date(now + waitOf(decision, now))
      if (this.#remembersCharges) {
        if (wasCharged(decision)) this.#remember(name, timeOf(decision))
        else this.#uncharged.add(name, resetTime.getTime(), Date.now())
      }
      return { totalHits: hitsOf(decision, this.#limit), resetTime }
    })
  }

  /** A limiter refuses itself what is no string: one over Redis by its promise. */
  #named(key: string): string {
    return typeof key !== 'string' && this.#limiter !== undefined ? key : prefixed(this.prefix, key)
  }

  #remember(name: string, at: number): void {
    this.#charges.delete(name)
    this.#charges.set(name, at)
    if (this.#charges.size > MAX_CHARGES) this.#charges.delete(this.#charges.keys().next().value!)
  }
}
