// The package as it is published, installed into an empty folder.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

const IMPORTS = ['tidegate', 'tidegate/express', 'tidegate/fastify', 'tidegate/hono', 'tidegate/nestjs']

test('it is installed by its archive alone, and decides by `import` and `require`', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-'))
  const run = (program, ...words) => execFileSync(program, words, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  run('npm', 'install', '--offline', '--no-audit', '--no-fund', process.env.TIDEGATE_PACKAGE)
  const loads = (load) => `const all = [${IMPORTS.map((name) => `${load}(${JSON.stringify(name)})`).join(', ')}]`
  const decides = (all) => `const [{ Limiter }] = ${all}; const limiter = new Limiter('1/minute'); console.log(limiter.allow('a'), limiter.allow('a'))`
  assert.equal(run(process.execPath, '--input-type=module', '--eval', `${loads('import')}; ${decides('await Promise.all(all)')}`), 'true false\n')
  assert.equal(run(process.execPath, '--input-type=commonjs', '--eval', `${loads('require')}; ${decides('all')}`), 'true false\n')
  const installed = JSON.parse(readFileSync(join(folder, 'package-lock.json'), 'utf8')).packages
  assert.deepEqual(Object.keys(installed), ['', 'node_modules/tidegate'])
  const { dependencies, optionalDependencies, peerDependencies, scripts } = JSON.parse(readFileSync(join(folder, 'node_modules/tidegate/package.json'), 'utf8'))
  assert.deepEqual([dependencies, optionalDependencies, peerDependencies, scripts], Array(4).fill(undefined))
  const wasm = join(folder, 'node_modules/tidegate/dist/tidegate.wasm')
  assert.ok(statSync(wasm).size <= 400_000)
  // So it has no clock and no random numbers: all that it knows is given to it.
  assert.deepEqual(WebAssembly.Module.imports(new WebAssembly.Module(readFileSync(wasm))), [])
})
