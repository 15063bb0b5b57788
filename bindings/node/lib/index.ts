// Tidegate for Node: exact rate limits in memory, over Redis, or by a server.

export { Client } from './client.js'
export type { CheckAnswer, CheckQuestion, ClientOptions, ClientFetch } from './client.js'
export { Decision } from './decision.js'
export type { HeldPermit } from './decision.js'
export { LimitError, RateLimited, StoreError } from './errors.js'
export { Limiter } from './limiter.js'
export type { AcquireOptions, AlgorithmName, LimiterOptions, Stats } from './limiter.js'
export { Permit, SharedPermit } from './permit.js'
export { RedisLimiter } from './redis.js'
export type { RedisLimiterOptions, SendCommand } from './redis.js'
export type { AbortSource } from './waiting.js'
