// Requests that a store has not charged, for frameworks that take requests back without asking whether they were charged.

/** For how many milliseconds such a request is remembered at the least. */
const LEAST_MS = 10

interface Requests {
  count: number
  /** When none of them is taken back any more, in Unix milliseconds. */
  until: number
}

/** How many uncharged requests of a key may still be taken back. Of the oldest keys it is forgotten if there are too many. */
export class Uncharged {
  readonly #requests = new Map<string, Requests>()
  readonly #maxKeys: number

  constructor(maxKeys: number) {
    this.#maxKeys = maxKeys
  }

  /**
   * Remembers a request. `resetTime` is the time that the store has answered with: express-rate-limit takes nothing back
   * from then on, and hono-rate-limiter takes a denied request back as soon as it has the answer. So no later request is
   * taken for this one if this one is never taken back.
   */
  add(key: string, resetTime: number, now: number): void {
    const known = this.#requests.get(key)
    const count = known !== undefined && now < known.until ? known.count + 1 : 1
    this.#requests.delete(key)
    this.#requests.set(key, { count, until: Math.max(resetTime, now + LEAST_MS) })
    if (this.#requests.size > this.#maxKeys) this.#requests.delete(this.#requests.keys().next().value!)
  }

  /** Whether what is taken back now is an uncharged request. That is forgotten. */
  take(key: string, now: number): boolean {
    const known = this.#requests.get(key)
    if (known === undefined) return false
    if (now >= known.until || known.count === 1) this.#requests.delete(key)
    else known.count -= 1
    return now < known.until
  }

  delete(key: string): void {
    this.#requests.delete(key)
  }

  clear(): void {
    this.#requests.clear()
  }
}
