// The answer to a request, made of the answers of its limits.

import { chargedAt } from './internal.js'
import { OUTCOME_NUMBERS, numbers, settleBuffers } from './wasm.js'

/** Writes the headers of a decision whose numbers are these. */
export interface Describer {
  describe(name: string, outcomes: ArrayLike<number>): [string, string][]
}

/** What is held under a concurrency limit. */
export interface HeldPermit {
  release(): boolean | Promise<boolean>
}

/** Whether a request may go on, and what its caller should know. */
export class Decision {
  /** Whether the request may go on. */
  readonly allowed: boolean
  /** What the limit that decided grants: requests per window, or the capacity of a bucket. */
  readonly limit: number
  /** The largest cost that would be allowed now, after this request. */
  readonly remaining: number
  /** Seconds until this same request would be allowed: 0 if it was, `null` if its cost is above any grant. */
  readonly retryAfter: number | null
  /** When `remaining` is whole again, in Unix seconds. */
  readonly resetAt: number
  /** For how many seconds the request should be held before it goes on. */
  readonly delay: number
  /** What is held under a concurrency limit, until it is released; else `null`. */
  readonly permit: HeldPermit | null
  /** When it was decided, in microseconds. */
  readonly #at: number
  readonly #describer: Describer | null
  /** The numbers of all outcomes, if there is more than one. */
  readonly #outcomes: ArrayLike<number> | null

  /**
   * `source` has the numbers of the outcome that decided, from `from` on. A decision is made for each request: short
   * enough to be compiled into what calls it.
   *
   * @internal
   */
  constructor(describer: Describer | null, allowed: boolean, source: ArrayLike<number>, from: number, outcomes: ArrayLike<number> | null, permit: HeldPermit | null) {
    const retry = source[from + 3]!
    this.allowed = allowed
    this.limit = source[from + 1]!
    this.remaining = source[from + 2]!
    this.retryAfter = retry < 0 ? null : retry / 1e6
    this.resetAt = source[from + 4]! / 1e6
    this.delay = !allowed ? 0 : (outcomes === null ? source[from + 5]! : longestDelay(outcomes)) / 1e6
    this.permit = permit
    this.#at = source[from + 6]!
    this.#describer = describer
    this.#outcomes = outcomes
  }

  /**
   * The response headers that describe it, as the server sends them: `Retry-After`, `X-RateLimit-*`, `RateLimit` and
   * `RateLimit-Policy`. `name` is the name of the limit that clients see.
   */
  headers(name = 'limit'): [string, string][] {
    if (typeof name !== 'string') throw new TypeError('the name of a limit is a string')
    return this.#describer?.describe(name, this.#outcomes ?? this.#numbers()) ?? []
  }

  /** @internal */
  get [chargedAt](): number {
    return this.#at / 1e3
  }

  #numbers(): number[] {
    const retry = this.retryAfter === null ? -1 : this.retryAfter * 1e6
    return [Number(this.allowed), this.limit, this.remaining, retry, this.resetAt * 1e6, this.delay * 1e6, this.#at]
  }
}

/** A request that is allowed by all limits is held for the longest of their delays. */
function longestDelay(outcomes: ArrayLike<number>): number {
  let delay = 0
  for (let index = 5; index < outcomes.length; index += OUTCOME_NUMBERS) delay = Math.max(delay, outcomes[index]!)
  return delay
}

/** The decision whose outcomes were written last. */
export function readDecision(describer: Describer, count: number, code: number, permit: HeldPermit | null): Decision {
  settleBuffers()
  const outcomes = count === 1 ? null : numbers.slice(0, count * OUTCOME_NUMBERS)
  return new Decision(describer, (code & 1) === 1, numbers, (code >>> 1) * OUTCOME_NUMBERS, outcomes, permit)
}
