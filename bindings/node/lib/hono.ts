// The store of hono-rate-limiter.

export { TidegateStore } from './express.js'
export type { HitInfo, RateLimitOptions, TidegateStoreOptions } from './express.js'
