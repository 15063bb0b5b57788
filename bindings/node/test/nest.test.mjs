// An application of Nest, with the storage in place of the built-in one.

import 'reflect-metadata'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Controller, Get, HttpCode, Module, Post } from '@nestjs/common'
import { APP_GUARD, NestFactory } from '@nestjs/core'
import { seconds, SkipThrottle, Throttle, ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler'
import { TidegateThrottlerStorage } from 'tidegate/nestjs'

/** Decorates a method as TypeScript does. */
function decorate(type, method, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(type.prototype, method)
  for (const decorator of decorators) decorator(type.prototype, method, descriptor)
}

class Orders {
  list() {
    return 'orders'
  }

  create() {
    return 'created'
  }

  health() {
    return 'well'
  }
}
Controller('orders')(Orders)
decorate(Orders, 'list', Get())
decorate(Orders, 'create', Post(), HttpCode(201), Throttle({ default: { limit: 1, ttl: seconds(30), blockDuration: seconds(90) } }))
decorate(Orders, 'health', Get('health'), SkipThrottle({ default: true, burst: true }))

async function start(t, storage) {
  class Application {}
  const throttlers = [{ ttl: seconds(60), limit: 3 }, { name: 'burst', ttl: seconds(1), limit: 2 }]
  Module({
    imports: [ThrottlerModule.forRoot({ throttlers, storage })],
    controllers: [Orders],
    providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
  })(Application)
  const app = await NestFactory.create(Application, { logger: false })
  t.after(() => app.close())
  await app.listen(0, '127.0.0.1')
  return app.getUrl()
}

test('routes, several throttlers, blocks and routes without a limit', async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_700_000_000_000 })
  const address = await start(t, new TidegateThrottlerStorage())
  const ask = async (path, method = 'GET') => {
    const { status, headers } = await fetch(`${address}/orders${path}`, { method })
    return [status, headers.get('retry-after') ?? headers.get('retry-after-burst'), headers.get('x-ratelimit-remaining'), headers.get('x-ratelimit-remaining-burst')]
  }
  assert.deepEqual([await ask(''), await ask(''), await ask('')], [[200, null, '2', '1'], [200, null, '1', '0'], [429, '1', null, null]])
  assert.deepEqual(await ask('/health'), [200, null, null, null])
  assert.deepEqual([await ask('', 'POST'), await ask('', 'POST')], [[201, null, '0', '1'], [429, '90', null, '0']])
  t.mock.timers.setTime(1_700_000_020_000)
  assert.deepEqual([await ask(''), await ask('')], [[200, null, '0', '1'], [429, '40', null, '0']])
  t.mock.timers.setTime(1_700_000_060_000)
  assert.deepEqual([await ask(''), await ask('', 'POST')], [[200, null, '1', '1'], [429, '30', null, '1']])
  t.mock.timers.setTime(1_700_000_090_000)
  assert.deepEqual(await ask('', 'POST'), [201, null, '0', '1'])
})
