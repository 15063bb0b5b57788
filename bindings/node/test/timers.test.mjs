// Fake timers of Jest and Vitest move the limiter and the stores.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { program } from './guide.mjs'

const runners = join(process.env.TIDEGATE_ROOT, 'target/tools/runners/node_modules')
const NAMES = ['express', 'fastify', 'nestjs']
const STEPS = join('timers', 'stores.js')

function folderWith(files) {
  const folder = mkdtempSync(join(import.meta.dirname, 'timers-'))
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
  cpSync(join(import.meta.dirname, STEPS), join(folder, 'stores.mjs'))
  return folder
}

async function passes(program, words, options) {
  const child = spawn(process.execPath, [join(runners, program), ...words], { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
  let printed = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part) => { printed += part })
  const code = await new Promise((resolve) => child.once('close', resolve))
  assert.equal(code, 0, printed)
  return printed
}

test('jest', async () => {
  const loaded = NAMES.map((name) => `${name}: require('tidegate/${name}')`).join(', ')
  const folder = folderWith({
    'package.json': '{ "type": "commonjs" }',
    'guide.test.js': program('In tests'),
    'stores.test.js': `const { readFileSync } = require('node:fs')
const play = new Function(readFileSync(__dirname + '/stores.mjs', 'utf8').replace('export async function play', 'return async function play'))()
test('time passes when Jest says so', async () => {
  jest.useFakeTimers()
  await play({ timers: jest, expect, tidegate: require('tidegate'), ${loaded} })
})
`,
  })
  const printed = await passes('jest/bin/jest.js', ['--rootDir', folder, '--config', '{}', '--runInBand'], { cwd: folder })
  assert.match(printed, /Tests: +2 passed/)
})

test('vitest', async () => {
  const folder = folderWith({
    'package.json': '{ "type": "module" }',
    'stores.test.js': `import { expect, test, vi } from ${JSON.stringify(join(runners, 'vitest/dist/index.js'))}
import * as tidegate from 'tidegate'
${NAMES.map((name) => `import * as ${name} from 'tidegate/${name}'`).join('\n')}
import { play } from './stores.mjs'
test('time passes when Vitest says so', async () => {
  vi.useFakeTimers()
  await play({ timers: vi, expect, tidegate, ${NAMES.join(', ')} })
})
`,
  })
  const printed = await passes('vitest/vitest.mjs', ['run', '--root', folder, '--no-color'], { cwd: folder, env: { ...process.env, NO_COLOR: '1' } })
  assert.match(printed, /Tests +1 passed/)
})
