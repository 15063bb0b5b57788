// Waiting: for a time, for a permit that is released, or until it is aborted.

/** What can end a wait: an `AbortSignal`. */
export interface AbortSource {
  readonly aborted: boolean
  readonly reason?: unknown
  addEventListener(type: 'abort', listener: () => void): void
  removeEventListener(type: 'abort', listener: () => void): void
}

/** The longest time of a timer. */
const LONGEST = 2 ** 31 - 1

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

  /** Waits for so many milliseconds, rounded up, or until it is woken. Rejects if it is aborted. */
  async wait(duration: number, signal: AbortSource | undefined, isWoken: boolean): Promise<void> {
    throwIfAborted(signal)
    if (duration <= 0) return
    let end!: () => void
    let timer: ReturnType<typeof setTimeout> | undefined
    await new Promise<void>((resolve) => {
      end = resolve
      timer = setTimeout(resolve, Math.min(Math.ceil(duration), LONGEST))
      signal?.addEventListener('abort', resolve)
      if (isWoken) this.#waiting.add(resolve)
    })
    clearTimeout(timer)
    signal?.removeEventListener('abort', end)
    this.#waiting.delete(end)
    throwIfAborted(signal)
  }
}
