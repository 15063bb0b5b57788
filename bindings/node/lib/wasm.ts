// The one instance of the WebAssembly, and the buffers through which texts and numbers are exchanged with it.

import source from '#wasm'
import { LimitError } from './errors.js'

/** How many numbers an outcome has: allowed, limit, remaining, retry, reset, delay, time. */
export const OUTCOME_NUMBERS = 7

interface Exports {
  readonly memory: WebAssembly.Memory
  input(length: number): number
  outcomes(count: number): number
  text(): number
  limiter_new(limits: number, length: number, maxKeys: number): number
  store_new(length: number, maxKeys: number): number
  limiter_set(limiter: number, count: number, windowMs: number): number
  limiter_open(limiter: number): void
  limiter_free(limiter: number): void
  limiter_count(limiter: number): number
  limiter_allow(limiter: number, key: number, cost: number, now: number): number
  limiter_check(limiter: number, key: number, cost: number, now: number): number
  limiter_peek(limiter: number, key: number, cost: number, now: number): number
  limiter_settle(limiter: number, key: number, cost: number, now: number): number
  limiter_release(limiter: number, permit: number, now: number): number
  limiter_reset(limiter: number, key: number, now: number): void
  limiter_clear(limiter: number): void
  limiter_sweep(limiter: number, now: number): void
  limiter_give_back(limiter: number, key: number, cost: number, chargedAt: number, now: number): void
  limiter_stats(limiter: number): void
  limiter_reserve(limiter: number, key: number, cost: number, maxWaitMs: number, now: number): number
  limiter_headers(limiter: number, name: number): number
  wire_new(length: number): number
  wire_free(limiter: number): void
  wire_count(limiter: number): number
  wire_ask(limiter: number, asked: number, input: number, cost: number, maxWaitMs: number): number
  wire_take_back(limiter: number, key: number, cost: number, chargedAt: number): number
  wire_give_back(limiter: number, step: number): number
  wire_release(limiter: number, step: number): number
  wire_headers(limiter: number, name: number): number
  step_arguments(step: number): number
  step_read(step: number, reply: number): number
  step_wait(step: number): number
  step_flags(step: number): number
  step_free(step: number): void
  permit(): number
  attempt_wait(): number
  attempt_turn(): number
  turn_take(turn: number): void
  turn_give_back(limiter: number, turn: number, now: number): void
}

// Compiled and instantiated without waiting: a limiter is ready as soon as it is imported.
const compiled = typeof source === 'string' ? new WebAssembly.Module(decode(source)) : source
export const wasm = new WebAssembly.Instance(compiled, {}).exports as unknown as Exports

const encoder = new TextEncoder()
const decoder = new TextDecoder()
/** Texts up to this length are written here: a call of the encoder takes longer. */
const SHORT = 16
let capacity = 4096
let outcomeCount = 4
let input!: Uint8Array<ArrayBuffer>
export let numbers!: Float64Array
refresh()

function decode(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64)
  const bytes = new Uint8Array(text.length)
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index)
  return bytes
}

function refresh(): void {
  const [inputAt, numbersAt] = [wasm.input(capacity), wasm.outcomes(outcomeCount)]
  // After both, either of which may have moved the memory.
  input = new Uint8Array(wasm.memory.buffer, inputAt, capacity)
  numbers = new Float64Array(wasm.memory.buffer, numbersAt, outcomeCount * OUTCOME_NUMBERS)
}

/** Must come before numbers are read: the memory moves when it grows. */
export function settleBuffers(): void {
  if (numbers.length === 0) refresh()
}

/** Makes room for the outcomes of so many limits. */
export function makeRoomForOutcomes(count: number): void {
  if (count > outcomeCount) {
    outcomeCount = count
    refresh()
  }
}

/** Writes a text into the input and returns its length in bytes. A lone surrogate is replaced. */
export function write(text: string): number {
  if (input.length === 0) refresh()
  const length = text.length
  if (length <= SHORT) {
    const bytes = input
    let all = 0
    for (let index = 0; index < length; index++) {
      const unit = text.charCodeAt(index)
      bytes[index] = unit
      all |= unit
    }
    if (all < 128) return length
  }
  if (length * 3 > capacity) {
    capacity = length * 3
    refresh()
  }
  return encoder.encodeInto(text, input).written
}

/** Writes 16 bytes, random ones if they are needed, and a text into the input. Returns their length in bytes. */
export function writeWithRandom(text: string, isRandom: boolean): number {
  const needed = 16 + text.length * 3
  if (input.length === 0 || needed > capacity) {
    capacity = Math.max(capacity, needed)
    refresh()
  }
  if (isRandom) crypto.getRandomValues(input.subarray(0, 16))
  return 16 + encoder.encodeInto(text, input.subarray(16)).written
}

/** Writes 32 random bytes into the input. */
export function writeSecret(): void {
  if (input.length === 0) refresh()
  crypto.getRandomValues(input.subarray(0, 32))
}

/** Reads the text of this length that was written last. */
export function readText(length: number): string {
  return decoder.decode(new Uint8Array(wasm.memory.buffer, wasm.text(), length))
}

/** Throws the error of a result that is one. */
export function checked(result: number): number {
  if (result < 0) throw new LimitError(readText(-result))
  return result
}

// Limiters that nothing refers to any more leave their memory to others.
const freed = typeof FinalizationRegistry === 'undefined' ? undefined : new FinalizationRegistry<number>((limiter) => wasm.limiter_free(limiter))

const freedWire = typeof FinalizationRegistry === 'undefined' ? undefined : new FinalizationRegistry<number>((limiter) => wasm.wire_free(limiter))

/** Frees a limiter of the WebAssembly when its owner is collected. */
export function freeWith(owner: object, limiter: number): void {
  freed?.register(owner, limiter)
}

/** The same for a limiter over Redis. */
export function freeWireWith(owner: object, limiter: number): void {
  freedWire?.register(owner, limiter)
}

/** Reads the headers that were written last. */
export function readHeaders(length: number): [string, string][] {
  const lines = readText(length).split('\n')
  const headers: [string, string][] = []
  for (let index = 0; index + 1 < lines.length; index += 2) headers.push([lines[index]!, lines[index + 1]!])
  return headers
}
