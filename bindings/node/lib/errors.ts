// What is thrown. Being over the limit is not an error, except where a caller waits.

import type { Decision } from './decision.js'

/** A limit is malformed. The message says what is accepted. */
export class LimitError extends RangeError {
  override readonly name = 'LimitError'
}

/** The wait for a turn would be too long. Nothing was charged. */
export class RateLimited extends Error {
  override readonly name = 'RateLimited'
  /** What the limits say of the request. */
  readonly decision: Decision

  constructor(message: string, decision: Decision) {
    super(message)
    this.decision = decision
  }

  /** Seconds until the same request would be allowed; `null` if it never would be. */
  get retryAfter(): number | null {
    return this.decision.retryAfter
  }
}

/** The store or the server did not answer. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  /** `false` if certainly nothing was charged; `null` if that is unknown. */
  readonly charged: false | null

  constructor(message: string, charged: false | null, options?: { cause?: unknown }) {
    super(message)
    if (options !== undefined && 'cause' in options) (this as { cause?: unknown }).cause = options.cause
    this.charged = charged
  }
}
