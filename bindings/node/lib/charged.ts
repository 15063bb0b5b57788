// What an error of a Redis client or of `fetch` says about whether a request was charged.

/** Codes of a connection that nothing was sent through: of Node, and of Bun. */
const REFUSED = ['ECONNREFUSED', 'ConnectionRefused']
/** What `fetch` of Deno says instead of a code. */
const REFUSED_IN_DENO = /client error \(Connect\): tcp connect error: Connection refused/
/** The classes of replies that are errors: of ioredis, and of node-redis. */
const ERROR_REPLIES = ['ReplyError', 'ErrorReply']

/** `false` if this error shows that nothing was charged, else `null`. */
export function chargedBy(error: unknown): false | null {
  return isErrorReply(error) || isRefused(error) ? false : null
}

/** Whether Redis has refused the command. The script changes nothing before it can fail no more. */
function isErrorReply(error: unknown): boolean {
  for (let type = error; typeof type === 'object' && type !== null; type = Object.getPrototypeOf(type) as unknown) {
    if (ERROR_REPLIES.includes(type.constructor?.name)) return true
  }
  return ERROR_REPLIES.includes((error as Error | undefined)?.name ?? '')
}

/** Whether no connection was made, to any of the addresses that were tried. */
function isRefused(error: unknown): boolean {
  const { code, cause, errors, message } = (error ?? {}) as { code?: unknown; cause?: unknown; errors?: unknown; message?: unknown }
  if (Array.isArray(errors) && errors.length > 0) return errors.every(isRefused)
  return REFUSED.includes(code as string) || REFUSED_IN_DENO.test(String(message)) || (cause !== undefined && isRefused(cause))
}
