// Tidegate for Node: exact rate limits in memory, over Redis, or by a server.

export { Decision } from './decision.js'
export type { HeldPermit } from './decision.js'
export { LimitError, RateLimited, StoreError } from './errors.js'
export { Limiter } from './limiter.js'
export type { AcquireOptions, AlgorithmName, LimiterOptions, Stats } from './limiter.js'
export { Permit } from './permit.js'
export type { AbortSource } from './waiting.js'
