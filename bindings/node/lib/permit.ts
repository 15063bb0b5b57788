/// <reference lib="esnext.disposable" preserve="true" />
// What an acquired turn holds until it is released.

import type { Decision } from './decision.js'

/** A turn. Under a concurrency limit it holds one of the permits until it is released. */
export class Permit {
  /** What the limits said; `null` for the permit of a decision itself. */
  readonly decision: Decision | null
  #release: (() => boolean) | null

  /** @internal */
  constructor(decision: Decision | null, release: (() => boolean) | null) {
    this.decision = decision
    this.#release = release
  }

  /** Releases it. False if it holds nothing, or if it has ended before. */
  release(): boolean {
    const release = this.#release
    this.#release = null
    return release?.() ?? false
  }

  /** Releases it at the end of a `using` block. */
  [Symbol.dispose](): void {
    this.release()
  }
}

/** A turn over Redis: what it holds is released by a call. */
export class SharedPermit {
  /** What the limits said; `null` for the permit of a decision itself. */
  readonly decision: Decision | null
  #release: (() => Promise<boolean>) | null

  /** @internal */
  constructor(decision: Decision | null, release: (() => Promise<boolean>) | null) {
    this.decision = decision
    this.#release = release
  }

  /** Releases it. False if it holds nothing, or if it has ended before. */
  async release(): Promise<boolean> {
    const release = this.#release
    this.#release = null
    return release === null ? false : release()
  }

  /** Releases it at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release()
  }
}
