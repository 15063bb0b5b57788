// A limiter as the counters of a store: one that the application made, in memory or over Redis.

import type { Decision } from './decision.js'
import { LimitError } from './errors.js'
import { chargedAt, forgetAll, giveBack } from './internal.js'
import type { AlgorithmName } from './limiter.js'

/** A value now, or a promise of it over Redis. */
export type Eventually<T> = T | Promise<T>

/** A `Limiter` or a `RedisLimiter`. */
export interface StoreLimiter {
  check(key: string, cost?: number): Eventually<Decision>
  peek(key: string, cost?: number): Eventually<Decision>
  reset(key: string): Eventually<void>
}

/** What stores need of a limiter besides. */
interface WholeLimiter extends StoreLimiter {
  [giveBack](key: string, cost: number, chargedAt: number): Eventually<void>
  [forgetAll]?(): void
}

/** What stores are given. */
export interface StoreChoice {
  /** How to count. */
  algorithm?: AlgorithmName
  /** A limiter that counts instead: a `RedisLimiter`, or a `Limiter`. It has limits of its own. */
  limiter?: StoreLimiter
}

/** The limiter of these options; none if the store counts in memory of its own. */
export function givenLimiter(options: StoreChoice): WholeLimiter | undefined {
  const { algorithm, limiter } = options
  if (limiter === undefined) return undefined
  if (algorithm !== undefined) throw new LimitError('a `limiter` has an algorithm of its own; leave out `algorithm`')
  if (typeof limiter !== 'object' || limiter === null || !(giveBack in limiter)) {
    throw new LimitError('`limiter` is not a limiter; give a `Limiter` or a `RedisLimiter`')
  }
  return limiter as WholeLimiter
}

/** Whether a decision has charged its request: it is allowed, and not only because the store did not answer. */
export function wasCharged(decision: Decision): boolean {
  return decision.allowed && decision.limit > 0
}

/** Calls `then` with a value, now or when it is there. */
export function andThen<T, U>(value: Eventually<T>, then: (value: T) => U): Eventually<U> {
  return value instanceof Promise ? value.then(then) : then(value)
}

/** How many requests a decision stands for, next to a limit: more than that if it is denied. */
export function hitsOf(decision: Decision, limit: number): number {
  return decision.allowed ? Math.min(limit, Math.max(1, limit - decision.remaining)) : limit + 1
}

/** When a decision was charged, in milliseconds. */
export function timeOf(decision: Decision): number {
  return decision[chargedAt]
}

/** Milliseconds until a denied request would be allowed, or until all is free again. */
export function waitOf(decision: Decision, now: number): number {
  const { allowed, retryAfter, resetAt } = decision
  return allowed || retryAfter === null ? Math.max(0, resetAt * 1e3 - now) : retryAfter * 1e3
}
