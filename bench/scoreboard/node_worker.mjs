// Limiters of Node as a worker: `node_worker.mjs CONTENDER`, then a line `turn N` for each turn, answered with JSON. Run next to the
// packages that it imports.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { MemoryStore as ExpressStore } from 'express-rate-limit'
import { MemoryStore as HonoStore } from 'hono-rate-limiter'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { ThrottlerStorageService } from '@nestjs/throttler'
import { Limiter } from 'tidegate'
import { TidegateStore } from 'tidegate/express'
import { tidegateStore } from 'tidegate/fastify'
import { TidegateThrottlerStorage } from 'tidegate/nestjs'

const LocalStore = createRequire(import.meta.url)('@fastify/rate-limit/store/LocalStore.js')

const LIMIT = 100_000_000
const WINDOW = 86_400_000
const CLIENTS = 10_000

// A framework makes the key of each request anew from what it has read.
const read = Buffer.concat(Array.from({ length: CLIENTS }, (_, client) => Buffer.from(`203.0.${100 + (client >> 7)}.${100 + (client & 127)}`)))
const LENGTH = read.length / CLIENTS

/** The key of a client, drawn from all of them. */
let drawn = 1
function nextKey() {
  drawn = (Math.imul(drawn, 1_103_515_245) + 12_345) >>> 0
  const at = ((drawn >>> 8) % CLIENTS) * LENGTH
  return read.latin1Slice(at, at + LENGTH)
}

async function cpu(work) {
  const began = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(began)
  return user + system
}

/** What calls cost more than making their keys, in turns. */
function each(call) {
  return async (count) => {
    const part = Math.ceil(count / 10)
    let spent = 0
    for (let turn = 0; turn < 10; turn++) {
      spent += await cpu(() => call(part))
      spent -= await cpu(() => { for (let made = 0; made < part; made++) nextKey() })
    }
    return spent / part / 10
  }
}

/** Calls that answer immediately. */
const now = (call) => each((count) => { for (let made = 0; made < count; made++) call(nextKey()) })
/** Calls that frameworks await, whatever they return. */
const awaited = (call) => each(async (count) => { for (let made = 0; made < count; made++) await call(nextKey()) })

function store(made) {
  made.init({ windowMs: WINDOW, limit: LIMIT })
  return awaited((key) => made.increment(key))
}

const plugin = (made) => awaited((key) => new Promise((resolve, reject) => made.incr(key, (error, usage) => (error ? reject(error) : resolve(usage)), WINDOW, LIMIT)))
const guard = (made) => awaited((key) => made.increment(key, WINDOW, LIMIT, WINDOW, 'default'))

/** Requests of clients that each have so many in the window already. */
function used(make, hits) {
  return async (count) => {
    const more = Math.max(1, Math.floor(hits / 10))
    const storage = make()
    const keys = Array.from({ length: Math.ceil(count / more) }, (_, client) => `client ${client}`)
    const hit = async (times) => {
      for (let made = 0; made < times; made++) for (const key of keys) await storage.increment(key, WINDOW, LIMIT, WINDOW, 'default')
    }
    await hit(hits)
    const spent = await cpu(() => hit(more))
    storage.onApplicationShutdown()
    return spent / keys.length / more
  }
}

const builtIn = () => new ThrottlerStorageService()
const CONTENDERS = {
  check: () => { const limiter = new Limiter('100000000/day'); return now((key) => limiter.check(key)) },
  allow: () => { const limiter = new Limiter('100000000/day'); return now((key) => limiter.allow(key)) },
  'express-store': () => store(new TidegateStore()),
  'express-bucket': () => store(new TidegateStore({ algorithm: 'token_bucket' })),
  'fastify-store': () => plugin(new (tidegateStore())({})),
  'nest-storage': () => guard(new TidegateThrottlerStorage()),
  express: () => store(new ExpressStore()),
  hono: () => store(new HonoStore()),
  fastify: () => plugin(new LocalStore(false, false, CLIENTS)),
  nest: () => guard(builtIn()),
  flexible: () => { const limiter = new RateLimiterMemory({ points: LIMIT, duration: WINDOW / 1000 }); return awaited((key) => limiter.consume(key)) },
}
for (const hits of [10, 1_000, 10_000]) {
  CONTENDERS[`nest-used-${hits}`] = () => used(builtIn, hits)
  CONTENDERS[`nest-storage-used-${hits}`] = () => used(() => new TidegateThrottlerStorage(), hits)
}

const work = CONTENDERS[process.argv[2]]()
console.log('{}')
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify({ cpu_us: await work(Number(line.split(' ')[1])) }))
}
process.exit()
