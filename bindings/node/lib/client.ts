// A client of the server's HTTP API, for services and edge runtimes: only `fetch` is needed.

import { LONGEST_TIMER, checkCost, milliseconds, shown } from './arguments.js'
import { chargedBy } from './charged.js'
import { StoreError } from './errors.js'

/** What is known of a request: names and texts. */
export type Attributes = Readonly<Record<string, string>>

/** The part of `fetch` that is used. */
export type ClientFetch = (url: string, init: { method: string; headers: Record<string, string>; body?: string; signal: AbortSignal }) => Promise<ClientResponse>

export interface ClientResponse {
  readonly status: number
  readonly headers: { get(name: string): string | null }
  text(): Promise<string>
}

export interface ClientOptions {
  /** The token of the server, if it asks for one. */
  token?: string
  /** For how many milliseconds an answer is waited for: 100. */
  timeoutMs?: number
  /** Sends requests; the global `fetch`, looked up at each call, if it is not given. */
  fetch?: ClientFetch
}

/** A check of a batch. */
export interface CheckQuestion {
  attributes: Attributes
  cost?: number
}

/** What the server decided. Where no rule applies, the numbers are `null`. */
export interface CheckAnswer {
  allowed: boolean
  /** The rule that decided. */
  rule: string | null
  limit: number | null
  remaining: number | null
  /** Seconds until this same request would be allowed: 0 if it was, `null` for never. */
  retryAfter: number | null
  /** When `remaining` is whole again, in Unix seconds. */
  resetAt: number | null
  /** For how many seconds the request should be held before it goes on. */
  delay: number
  /** Whether it was decided without the store. */
  degraded: boolean
  /** What is to be released when the request is done, if a concurrency limit was taken. */
  lease: string | null
  /** Why it is denied. */
  reason: string | null
  /** The headers that describe it, for the response to the client; none in a batch. */
  headers(): [string, string][]
}

const HEADERS = ['retry-after', 'x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'ratelimit-policy', 'ratelimit']

/** Asks a Tidegate server. Rejects with `StoreError` if it does not answer. */
export class Client {
  readonly #url: string
  readonly #token: string | undefined
  readonly #timeoutMs: number
  readonly #fetch: ClientFetch | undefined

  /** `url` is where the server listens, such as `http://127.0.0.1:8080`. */
  constructor(url: string | URL, options: ClientOptions = {}) {
    this.#url = new URL(url).href.replace(/\/+$/, '')
    this.#token = options.token
    this.#timeoutMs = Math.min(milliseconds('timeoutMs', options.timeoutMs, 100), LONGEST_TIMER)
    this.#fetch = options.fetch
  }

  /** Decides a request by the rules of the server, and charges it. */
  async check(attributes: Attributes, options: { cost?: number } = {}): Promise<CheckAnswer> {
    const response = await this.#call('POST', '/v1/check', question({ attributes, ...options }))
    const answer = response.json as Record<string, unknown>
    if (typeof answer?.['allowed'] !== 'boolean') throw refused(response)
    return decided(answer, response.headers)
  }

  /** Decides up to 1,000 requests, each on its own. */
  async checkBatch(checks: readonly CheckQuestion[]): Promise<CheckAnswer[]> {
    if (!Array.isArray(checks)) throw new TypeError(`\`${shown(checks)}\` is not a batch; give an array of \`{ attributes, cost }\``)
    const response = await this.#call('POST', '/v1/check/batch', { checks: checks.map(question) })
    const decisions = (response.json as { decisions?: unknown } | undefined)?.decisions
    if (response.status !== 200 || !Array.isArray(decisions)) throw refused(response)
    return decisions.map((answer: Record<string, unknown>) => decided(answer, []))
  }

  /** Releases a lease. False if it is unknown or has ended. */
  async release(lease: string): Promise<boolean> {
    return this.#lease('DELETE', lease)
  }

  /** Lets a lease last its whole time again. False if it is unknown or has ended. */
  async renew(lease: string): Promise<boolean> {
    return this.#lease('PUT', lease)
  }

  async #lease(method: string, lease: string): Promise<boolean> {
    if (typeof lease !== 'string') throw new TypeError(`\`${shown(lease)}\` is not a lease; give the \`lease\` of an answer`)
    const response = await this.#call(method, `/v1/leases/${encodeURIComponent(lease)}`)
    if (response.status === 404) return false
    if (response.status >= 300) throw refused(response)
    return true
  }

  async #call(method: string, path: string, body?: unknown): Promise<ServerResponse> {
    const headers: Record<string, string> = body === undefined ? {} : { 'content-type': 'application/json' }
    if (this.#token !== undefined) headers['authorization'] = `Bearer ${this.#token}`
    const controller = new AbortController()
    const timer = setTimeout(() => controller.abort(), this.#timeoutMs)
    try {
      const send = this.#fetch ?? (globalThis.fetch as unknown as ClientFetch)
      const response = await send(this.#url + path, { method, headers, signal: controller.signal, ...(body !== undefined && { body: JSON.stringify(body) }) })
      const text = await response.text()
      const found = HEADERS.map((name): [string, string | null] => [name, response.headers.get(name)])
      return { status: response.status, json: parsed(text), headers: found.filter((pair): pair is [string, string] => pair[1] !== null) }
    } catch (error) {
      const message = controller.signal.aborted ? `the server did not answer within ${this.#timeoutMs} ms` : `the server could not be asked: ${(error as Error | undefined)?.message ?? shown(error)}`
      throw new StoreError(message, controller.signal.aborted ? null : chargedBy(error), { cause: error })
    } finally {
      clearTimeout(timer)
    }
  }
}

interface ServerResponse {
  status: number
  json: unknown
  headers: [string, string][]
}

function question(asked: CheckQuestion): CheckQuestion {
  const { attributes, cost } = asked
  if (typeof attributes !== 'object' || attributes === null) throw new TypeError(`\`${shown(attributes)}\` is not a value of \`attributes\`; give an object of strings`)
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value !== 'string') throw new TypeError(`\`${shown(value)}\` is not a value of the attribute \`${name}\`; give a string`)
  }
  if (cost !== undefined) checkCost(cost)
  return cost === undefined ? { attributes } : { attributes, cost }
}

function decided(answer: Record<string, unknown>, headers: [string, string][]): CheckAnswer {
  const value = <T>(name: string): T | null => (answer[name] as T | undefined) ?? null
  return {
    allowed: answer['allowed'] === true,
    rule: value('rule'),
    limit: value('limit'),
    remaining: value('remaining'),
    retryAfter: value('retry_after'),
    resetAt: value('reset_time'),
    delay: value<number>('delay') ?? 0,
    degraded: answer['degraded'] === true,
    lease: value('lease'),
    reason: value('reason'),
    headers: () => headers,
  }
}

/** The server, or a proxy in front of it, answered without a decision. */
function refused({ status, json }: ServerResponse): StoreError {
  const problem = (json ?? {}) as { title?: unknown; detail?: unknown; status?: unknown }
  const reported = [problem.detail, problem.title].find((text) => typeof text === 'string')
  // A proxy that got no answer answers itself: the server may have charged.
  const isOfServer = problem.status === status && typeof problem.detail === 'string' && ![502, 504].includes(status)
  const isCertain = isOfServer || (status >= 400 && status < 500)
  return new StoreError(`the server answered ${status}: ${reported ?? 'not an answer of Tidegate'}`, isCertain ? false : null)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
