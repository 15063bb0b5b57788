// Servers of a test's own, which end with it: Redis and Tidegate.

import { spawn } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A port that nothing listens on. */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** Waits until a port accepts connections. */
async function listening(port, child, name) {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`${name} ended with code ${child.exitCode}`)
    const isOpen = await new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(true)).once('error', () => resolve(false))
      socket.once('connect', () => socket.end())
    })
    if (isOpen) return
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

/** Starts a program that listens on a port, which its arguments or its environment say. */
export async function start(test, name, program, argumentsFor, { env = () => process.env, ...options } = {}) {
  const port = await freePort()
  const child = spawn(program, argumentsFor(port), { stdio: ['ignore', 'ignore', 'inherit'], env: env(port), ...options })
  child.once('error', (error) => { throw new Error(`${name} is needed for this test: ${error.message}`) })
  test.after(() => child.kill('SIGKILL'))
  await listening(port, child, name)
  return { port, child }
}

/** A Redis that keeps nothing, with these options. */
export async function startRedis(test, ...options) {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-'))
  return start(test, 'redis-server', 'redis-server', (port) => ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder, '--loglevel', 'warning', ...options])
}

/** A Tidegate server with these rules, and these settings as variables. */
export async function startTidegate(test, rules, settings = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-'))
  writeFileSync(join(folder, 'rules.yaml'), rules)
  const { port } = await start(
    test,
    'tidegate',
    process.env.TIDEGATE_PROGRAM ?? 'tidegate',
    (port) => ['serve', '--rules', join(folder, 'rules.yaml'), '--http', `127.0.0.1:${port}`, '--log-level', 'error'],
    { cwd: folder, env: () => ({ ...process.env, TIDEGATE_GRPC: 'off', ...settings }) },
  )
  return `http://127.0.0.1:${port}`
}
