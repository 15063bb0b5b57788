// Programs as users write them, which must be right for `tsc --strict`. They are compiled and not run.

import { rateLimit } from 'express-rate-limit'
import { rateLimiter } from 'hono-rate-limiter'
import Fastify from 'fastify'
import fastifyRateLimit from '@fastify/rate-limit'
import { ThrottlerModule, type ThrottlerStorage } from '@nestjs/throttler'
import { Decision, LimitError, Limiter, Permit, RateLimited, StoreError, type AlgorithmName } from 'tidegate'
import { TidegateStore } from 'tidegate/express'
import { tidegateStore } from 'tidegate/fastify'
import { TidegateStore as HonoStore } from 'tidegate/hono'
import { TidegateThrottlerStorage } from 'tidegate/nestjs'

const algorithm: AlgorithmName = 'token_bucket'
const limiter = new Limiter('100/minute', { algorithm, maxKeys: 10, maxWaitMs: 5, now: Date.now })
const decision: Decision = limiter.check('user_42', 2)
const retryAfter: number | null = decision.retryAfter
const headers: [string, string][] = decision.headers('per-user')
const allowed: boolean = limiter.allow('user_42') && retryAfter === 0 && headers.length > 0
{
  using permit: Permit = await limiter.acquire('api', { cost: 1, timeoutMs: 10, signal: AbortSignal.timeout(5) })
  permit.release()
}
const errors: [typeof LimitError, typeof RateLimited, typeof StoreError] = [LimitError, RateLimited, StoreError]
// @ts-expect-error A key is a string.
limiter.check(42)
// @ts-expect-error There is no such algorithm.
new Limiter('1/minute', { algorithm: 'leaky' })

rateLimit({ windowMs: 60_000, limit: 100, store: new TidegateStore({ algorithm: 'token_bucket' }) })
rateLimiter({ windowMs: 60_000, limit: 100, keyGenerator: () => 'all', store: new HonoStore() })
await Fastify().register(fastifyRateLimit, { max: 100, timeWindow: '1 minute', store: tidegateStore({ algorithm: 'token_bucket' }) })
const storage: ThrottlerStorage = new TidegateThrottlerStorage()
ThrottlerModule.forRoot({ throttlers: [{ ttl: 60_000, limit: 100 }], storage })

export { allowed, errors }
