// Programs as users write them, which must be right for `tsc --strict`. They are compiled and not run.

import { rateLimit } from 'express-rate-limit'
import { rateLimiter } from 'hono-rate-limiter'
import Fastify from 'fastify'
import fastifyRateLimit from '@fastify/rate-limit'
import { ThrottlerModule, type ThrottlerStorage } from '@nestjs/throttler'
import { Cluster, Redis } from 'ioredis'
import { createClient } from 'redis'
import { Client, Decision, LimitError, Limiter, Permit, RateLimited, RedisLimiter, SharedPermit, StoreError, type AlgorithmName, type CheckAnswer, type SendCommand } from 'tidegate'
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

const redis = new Redis()
const cluster = new Cluster([])
const client = createClient()
const shared = new RedisLimiter('100/hour', { sendCommand: (...args) => redis.call(...args), name: 'per-user', namespace: 'n', keySecret: 's', timeoutMs: 5, onStoreFailure: 'allow' })
const ways: SendCommand[] = [
  (...args) => cluster.call(...args),
  (...words) => client.sendCommand(words),
  (...words: string[]) => client.sendCommand(words),
  (command: string, ...words: string[]) => redis.call(command, ...words),
]
const counted: { keys: null; evictions: null } = await shared.stats()
{
  await using permit: SharedPermit = await shared.acquire('api')
  const held: boolean = await permit.release()
}
// @ts-expect-error There is nothing to send commands with.
new RedisLimiter('1/minute')
rateLimit({ store: new TidegateStore({ limiter: shared, prefix: 'a:' }) })
rateLimiter({ keyGenerator: () => 'all', store: new HonoStore({ limiter: shared }) })
await Fastify().register(fastifyRateLimit, { store: tidegateStore({ limiter: shared }) })
const sharedStorage: ThrottlerStorage = new TidegateThrottlerStorage({ limiter: shared })
const server = new Client('http://127.0.0.1:8080', { token: 't', timeoutMs: 5, fetch })
const answer: CheckAnswer = await server.check({ user_id: 'user_42' }, { cost: 2 })
const answers: CheckAnswer[] = await server.checkBatch([{ attributes: { user_id: 'user_42' }, cost: 2 }])
const isReleased: boolean = answer.lease !== null && (await server.release(answer.lease)) && (await server.renew(answer.lease))

export { allowed, answers, counted, errors, isReleased, sharedStorage, ways }
