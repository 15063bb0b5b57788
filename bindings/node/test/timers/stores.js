// What both runners try: time passes for a limiter and for every store when the runner says so.

/** Plays one step after another; `timers` are those of the runner. */
export async function play({ timers, expect, tidegate, express, fastify, nestjs }) {
  const MINUTE = 60_000
  const limiter = new tidegate.Limiter('1/minute')
  const fixed = new express.TidegateStore()
  const bucket = new express.TidegateStore({ algorithm: 'token_bucket' })
  for (const store of [fixed, bucket]) store.init({ windowMs: MINUTE, limit: 1 })
  const Fastify = fastify.tidegateStore()
  const plugin = new Fastify({})
  const storage = new nestjs.TidegateThrottlerStorage()
  const admitted = async () => {
    let usage
    plugin.incr('a', (error, counted) => { usage = counted }, MINUTE, 1)
    const record = await storage.increment('a', MINUTE, 1, MINUTE, 'default')
    return [limiter.allow('a'), (await fixed.increment('a')).totalHits <= 1, (await bucket.increment('a')).totalHits <= 1, usage.current <= 1, !record.isBlocked]
  }
  const all = (value) => Array(5).fill(value)
  expect(await admitted()).toEqual(all(true))
  expect(await admitted()).toEqual(all(false))
  timers.advanceTimersByTime(MINUTE - 1)
  expect(await admitted()).toEqual(all(false))
  timers.advanceTimersByTime(1)
  expect(await admitted()).toEqual(all(true))
  timers.setSystemTime(Date.now() + MINUTE)
  expect(await admitted()).toEqual(all(true))
  expect((await fixed.get('a')).resetTime.getTime()).toBe(Date.now() + MINUTE)

  // A turn comes when the timer of its wait ends.
  const steady = new tidegate.Limiter('1/second burst 1')
  steady.check('api')
  let turn
  const waiting = steady.acquire('api').then((permit) => { turn = permit })
  await timers.advanceTimersByTimeAsync(999)
  expect(turn).toBeUndefined()
  await timers.advanceTimersByTimeAsync(1)
  await waiting
  expect(turn.decision.allowed).toBe(true)
}
