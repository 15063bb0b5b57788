// Waiting: for a time, for a permit that is released, or until it is aborted. And what is done again and again.

import { LONGEST_TIMER } from './arguments.js'

/** What can end a wait: an `AbortSignal`. */
export interface AbortSource {
  readonly aborted: boolean
  readonly reason?: unknown
  addEventListener(type: 'abort', listener: () => void): void
  removeEventListener(type: 'abort', listener: () => void): void
}

/** Throws if it was aborted. */
export function throwIfAborted(signal: AbortSource | undefined): void {
  if (signal?.aborted === true) throw reasonOf(signal)
}

function reasonOf(signal: AbortSource): unknown {
  return signal.reason ?? new Error('the wait was aborted')
}

/** Callers that wait for a permit. */
export class Waiters {
  readonly #waiting = new Set<() => void>()

  /** Wakes all of them. */
  wake(): void {
    for (const wake of [...this.#waiting]) wake()
  }

  /**
   * Waits until `clock` shows this time. A timer may end before: it counts from when the event loop last looked at the clock,
   * which is long ago after synchronous work. A clock that stands still, as in tests, is not waited for. Rejects if it is
   * aborted.
   */
  async until(due: number, clock: () => number, signal: AbortSource | undefined): Promise<void> {
    throwIfAborted(signal)
    let left = due - clock()
    for (let before = Infinity; left > 0 && left < before; left = due - clock()) {
      before = left
      await this.wait(left, signal, false)
    }
  }

  /** Waits for so many milliseconds, rounded up, or until it is woken. Answers whether it was. Rejects if it is aborted. */
  async wait(duration: number, signal: AbortSource | undefined, isWoken: boolean): Promise<boolean> {
    throwIfAborted(signal)
    if (duration <= 0) return false
    let end!: () => void
    let timer: ReturnType<typeof setTimeout> | undefined
    const wasWoken = await new Promise<boolean>((resolve) => {
      end = () => resolve(true)
      timer = setTimeout(() => resolve(false), Math.min(Math.ceil(duration), LONGEST_TIMER))
      signal?.addEventListener('abort', end)
      if (isWoken) this.#waiting.add(end)
    })
    clearTimeout(timer)
    signal?.removeEventListener('abort', end)
    this.#waiting.delete(end)
    throwIfAborted(signal)
    return wasWoken
  }
}

/** What `setInterval` returns, which differs between runtimes. */
export type Interval = ReturnType<typeof setInterval>

/**
 * Sweeps every so many milliseconds, for as long as what is swept is in use, and without keeping the process alive. No timer
 * where none may be set, as in Workers while modules are loaded: counters are also swept by new keys.
 */
export function sweepEvery<T extends object>(duration: number, swept: T, sweep: (swept: T) => void): Interval | undefined {
  const held = new WeakRef(swept)
  try {
    const interval = setInterval(() => {
      const found = held.deref()
      if (found === undefined) clearInterval(interval)
      else sweep(found)
    }, Math.min(duration, LONGEST_TIMER))
    ;(interval as { unref?(): void }).unref?.()
    return interval
  } catch {
    return undefined
  }
}
