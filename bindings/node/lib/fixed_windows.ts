// Fixed windows as the built-in stores of other libraries count them: from the first request on, denied requests too. They
// are no limit, only a count, so there is nothing that the WebAssembly would decide, and a map is faster than a call.

import type { KeyCounters } from './counters.js'
import { notAKey } from './arguments.js'

const MAX_KEYS = 1_000_000

/** The window of a key. What `hit` returns is the window itself, as with the built-in stores, and goes on counting. */
export interface OpenWindow {
  totalHits: number
  openedAt: number
  resetTime: Date
}

/** Counts keys in windows. Keys whose window is over are forgotten two of the longest windows later, when it is swept. */
export class FixedWindows implements KeyCounters {
  readonly algorithm = 'fixed_window'
  readonly countsDenied = true
  used = 0
  resetAt = 0
  retry = 0
  at = 0
  resetTime = new Date(0)
  /** Whether a timer sweeps, as in the built-in stores; else new keys do. */
  isSwept = false
  readonly #maxKeys: number
  #current = new Map<string, OpenWindow>()
  #previous = new Map<string, OpenWindow>()
  #turnsAt = 0
  #longestMs = 0

  constructor(maxKeys = MAX_KEYS) {
    this.#maxKeys = maxKeys
  }

  /** Counts a request, and returns the window of its key. */
  hit(key: string, windowMs: number, now: number): OpenWindow {
    let open = this.#current.get(key)
    if (windowMs > this.#longestMs) this.#longestMs = windowMs
    if (open === undefined) open = this.#bring(key, windowMs, now)
    const age = now - open.openedAt
    // A clock that was set back far opens a new window, too.
    if (age >= windowMs || age < -windowMs) {
      open.totalHits = 0
      open.openedAt = now
      open.resetTime = new Date(now + windowMs)
    }
    open.totalHits += 1
    return open
  }

  /** The window of a key that is not over; nothing if there is none. */
  find(key: string, windowMs: number, now: number): OpenWindow | undefined {
    const name = wellFormed(key)
    const open = this.#current.get(name) ?? this.#previous.get(name)
    return open === undefined || now - open.openedAt >= windowMs ? undefined : open
  }

  charge(key: string, limit: number, windowMs: number, now: number): boolean {
    const open = this.hit(key, windowMs, now)
    this.#answer(open, windowMs, now)
    return open.totalHits <= limit
  }

  peek(key: string, limit: number, windowMs: number, now: number): boolean {
    const open = this.find(key, windowMs, now)
    if (open === undefined) {
      this.used = 0
      return true
    }
    this.#answer(open, windowMs, now)
    return open.totalHits < limit
  }

  /** As in the built-in stores, a key of which nothing is counted has a window afterwards. */
  giveBack(key: string, _chargedAt: number, windowMs: number, now: number): void {
    const open = this.#current.get(key) ?? this.#bring(key, windowMs, now)
    if (open.totalHits > 0) open.totalHits -= 1
  }

  reset(key: string): void {
    const name = wellFormed(key)
    this.#current.delete(name)
    this.#previous.delete(name)
  }

  clear(): void {
    this.#current.clear()
    this.#previous.clear()
  }

  sweep(now: number): void {
    if (now < this.#turnsAt && this.#current.size < this.#maxKeys) return
    this.#previous = this.#current
    this.#current = new Map()
    this.#turnsAt = now + this.#longestMs
  }

  get size(): number {
    return this.#current.size + this.#previous.size
  }

  /** Keys since the last turn, and those of the turn before. @internal */
  get maps(): readonly [ReadonlyMap<string, OpenWindow>, ReadonlyMap<string, OpenWindow>] {
    return [this.#current, this.#previous]
  }

  #answer(open: OpenWindow, windowMs: number, now: number): void {
    this.used = open.totalHits
    this.resetAt = open.openedAt + windowMs
    this.retry = this.resetAt - now
    this.at = now
    this.resetTime = open.resetTime
  }

  /** The window of a key that is not among the current ones, which it is from now on. */
  #bring(key: string, windowMs: number, now: number): OpenWindow {
    const name = wellFormed(key)
    if (windowMs > this.#longestMs) this.#longestMs = windowMs
    if (!this.isSwept || this.#current.size >= this.#maxKeys) this.sweep(now)
    const open = this.#current.get(name) ?? this.#previous.get(name) ?? { totalHits: 0, openedAt: now, resetTime: new Date(now + windowMs) }
    this.#previous.delete(name)
    this.#current.set(name, open)
    return open
  }
}

/** A key as `TextEncoder` would encode it: a lone surrogate is replaced. */
function wellFormed(key: string): string {
  if (typeof key !== 'string') throw notAKey(key)
  return key.isWellFormed() ? key : key.toWellFormed()
}
