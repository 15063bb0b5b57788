// The client of the server's HTTP API.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client, StoreError } from 'tidegate'
import { freePort, startTidegate } from './servers.mjs'

const RULES = `rules:
  - {id: per-user, per: [user_id], limit: 2/hour, match: {path: /orders}}
  - {id: reports, per: [user_id], limit: 1, algorithm: concurrency, match: {path: /reports}}
`

test('checks, batches and leases', async (t) => {
  const client = new Client(await startTidegate(t, RULES), { timeoutMs: 5000 })
  const orders = { path: '/orders', user_id: 'ada' }
  const first = await client.check(orders)
  assert.deepEqual([first.allowed, first.rule, first.limit, first.remaining, first.retryAfter, first.lease], [true, 'per-user', 2, 1, 0, null])
  assert.ok(first.headers().some(([name]) => name === 'ratelimit'))
  const denied = await client.check(orders, { cost: 2 })
  assert.deepEqual([denied.allowed, denied.reason], [false, 'over_limit'])
  assert.equal((await client.check(orders, { cost: 3 })).retryAfter, null)
  const batch = await client.checkBatch([{ attributes: orders }, { attributes: orders }, { attributes: { path: '/other' } }])
  assert.deepEqual(batch.map((answer) => answer.allowed), [true, false, true])
  const { lease } = await client.check({ path: '/reports', user_id: 'ada' })
  assert.equal(await client.renew(lease), true)
  assert.equal(await client.release(lease), true)
  assert.equal(await client.release(lease), false)
  await assert.rejects(client.check({ user_id: 7 }), TypeError)
  await assert.rejects(client.check(orders, { cost: -1 }), RangeError)
})

test('a server that does not answer is a store error', async () => {
  const port = await freePort()
  for (const address of [`http://127.0.0.1:${port}`, `http://localhost:${port}`]) {
    const unreachable = new Client(address, { timeoutMs: 5000 })
    await assert.rejects(unreachable.check({}), (error) => error instanceof StoreError && error.charged === false)
  }
  const hanging = new Client('http://127.0.0.1:1', { timeoutMs: 10, fetch: (_, { signal }) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))) })
  await assert.rejects(hanging.check({}), /did not answer within 10 ms/)
  const other = new Client('http://127.0.0.1:1', { token: 't', fetch: async (url, { headers }) => new Response(JSON.stringify({ title: headers.authorization }), { status: 401 }) })
  await assert.rejects(other.checkBatch([]), /the server answered 401: Bearer t/)
  await assert.rejects(other.checkBatch(), { name: 'TypeError', message: /`undefined` is not a batch/ })
})

test('an error says whether anything was charged, as far as that is certain', async () => {
  const problem = (status) => JSON.stringify({ type: 'about:blank', title: 'Service Unavailable', status, detail: 'the rules are not known yet' })
  const answers = [[401, '', false], [404, 'not found', false], [413, problem(413), false], [503, problem(503), false], [500, '', null], [502, '<html>', null], [503, '{}', null], [504, problem(504), null], [200, '<html>', null]]
  for (const [status, body, charged] of answers) {
    const client = new Client('http://127.0.0.1:1', { fetch: async () => new Response(body, { status }) })
    for (const asked of [client.check({}), client.checkBatch([])]) {
      await assert.rejects(asked, (error) => error instanceof StoreError && error.charged === charged, `${status} ${body}`)
    }
  }
  const reset = new Client('http://127.0.0.1:1', { fetch: async () => { throw Object.assign(new TypeError('fetch failed'), { cause: { code: 'ECONNRESET' } }) } })
  await assert.rejects(reset.check({}), (error) => error.charged === null)
})

test('any time is waited for, also one that is longer than timers last', async () => {
  for (const timeoutMs of [Infinity, 2 ** 31, 2 ** 31 - 1]) {
    const fetch = async (_, { signal }) => {
      await new Promise((resolve) => setTimeout(resolve, 20))
      signal.throwIfAborted()
      return new Response('{"allowed":true}')
    }
    assert.equal((await new Client('http://127.0.0.1:1', { timeoutMs, fetch }).check({})).allowed, true)
  }
})
