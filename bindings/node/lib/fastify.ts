// The store of @fastify/rate-limit.

import { prefixed } from './arguments.js'
import { countersFor } from './counters.js'
import { LimitError } from './errors.js'
import type { AlgorithmName } from './limiter.js'
import { givenLimiter, hitsOf, waitOf, type StoreChoice } from './store_limiter.js'

export interface FastifyStoreOptions extends StoreChoice {
  /** How to count: `fixed_window` by default, which counts denied requests as the built-in store does. */
  algorithm?: AlgorithmName
}

/** What a store reads of the options of the plugin, or of a route. */
export interface FastifyRateLimitOptions {
  ban?: number
  continueExceeding?: boolean
  exponentialBackoff?: boolean
  /** Of a route: what is known of it. */
  routeInfo?: { method?: string | readonly string[]; url?: string }
}

export interface FastifyUsage {
  /** Requests so far; more than `max` if this one is denied. */
  current: number
  /** Milliseconds until the window ends; if denied by another algorithm, until a retry is allowed. */
  ttl: number
}

export type FastifyCallback = (error: Error | null, usage?: FastifyUsage) => void

/** Keys are what a `keyGenerator` may return. */
export interface FastifyStore {
  incr(key: string | number, callback: FastifyCallback, timeWindow: number, max: number): void
  read(key: string | number, callback: FastifyCallback, timeWindow: number, max?: number): void
  child(routeOptions: object): FastifyStore
}

export type FastifyStoreConstructor = new (options: object) => FastifyStore

/**
 * A class of stores for the option `store` of @fastify/rate-limit. Each route with options of its own counts by itself; with
 * a `limiter` its keys begin with its method and path, as those of the plugin's store for Redis.
 */
export function tidegateStore(choice: FastifyStoreOptions = {}): FastifyStoreConstructor {
  const limiter = givenLimiter(choice)
  const algorithm = choice.algorithm ?? 'fixed_window'
  // Reports a wrong name here, and not at the first request.
  if (limiter === undefined) countersFor(algorithm)

  return class TidegateFastifyStore implements FastifyStore {
    readonly #counters = limiter === undefined ? countersFor(algorithm) : undefined
    readonly #prefix: string

    constructor(given: object, prefix = '') {
      this.#prefix = prefix
      const options = given as FastifyRateLimitOptions | undefined
      for (const name of ['continueExceeding', 'exponentialBackoff'] as const) {
        if (options?.[name] === true) {
          throw new LimitError(`\`${name}\` lets denied requests prolong the window, which Tidegate does not; leave it out`)
        }
      }
      if ((options?.ban ?? -1) >= 0 && this.#counters?.countsDenied !== true) {
        throw new LimitError('`ban` counts denied requests, which only `fixed_window` does; leave it out, or count by that algorithm')
      }
    }

    incr(given: string | number, callback: FastifyCallback, timeWindow: number, max: number): void {
      const now = Date.now()
      if (limiter !== undefined) {
        return this.#ask(callback, async () => {
          const decision = await limiter.check(this.#named(given))
          return { current: hitsOf(decision, max), ttl: waitOf(decision, now) }
        })
      }
      this.#answer(callback, () => {
        if (!(timeWindow > 0)) return { current: 1, ttl: 0 }
        if (!(max >= 1) && !this.#counters!.countsDenied) return { current: max + 1, ttl: timeWindow }
        const key = this.#named(given)
        const counters = this.#counters!
        const isAllowed = counters.charge(key, max, timeWindow, now)
        return isAllowed || counters.countsDenied ? { current: counters.used, ttl: counters.resetAt - now } : { current: max + 1, ttl: counters.retry }
      })
    }

    read(given: string | number, callback: FastifyCallback, timeWindow: number, max = 1): void {
      const now = Date.now()
      if (limiter !== undefined) {
        return this.#ask(callback, async () => {
          const decision = await limiter.peek(this.#named(given), 0)
          const current = Math.max(0, max - decision.remaining)
          return { current, ttl: current === 0 ? 0 : waitOf(decision, now) }
        })
      }
      this.#answer(callback, () => {
        if (!(timeWindow > 0) || (!(max >= 1) && !this.#counters!.countsDenied)) return { current: 0, ttl: 0 }
        this.#counters!.peek(this.#named(given), max, timeWindow, now)
        const { used, resetAt } = this.#counters!
        return { current: used, ttl: used === 0 ? 0 : resetAt - now }
      })
    }

    child(routeOptions: object): FastifyStore {
      const { method = '', url = '' } = (routeOptions as FastifyRateLimitOptions).routeInfo ?? {}
      return new TidegateFastifyStore(routeOptions, limiter === undefined ? '' : `${this.#prefix}${String(method)}${url}-`)
    }

    #named(key: string | number): string {
      return prefixed(this.#prefix, typeof key === 'number' ? String(key) : key)
    }

    #answer(callback: FastifyCallback, answer: () => FastifyUsage): void {
      let usage: FastifyUsage
      try {
        usage = answer()
      } catch (error) {
        return callback(error as Error)
      }
      callback(null, usage)
    }

    #ask(callback: FastifyCallback, answer: () => Promise<FastifyUsage>): void {
      answer().then((usage) => callback(null, usage), (error: Error) => callback(error))
    }
  }
}
