// Replies of Redis clients as the lines that the WebAssembly reads.

/** Calls `read` with the lines of a reply. */
export function withReplyLines<T>(reply: unknown, read: (lines: string) => T): T {
  const lines: string[] = []
  add(reply, lines)
  return read(lines.join('\n'))
}

function add(value: unknown, lines: string[]): void {
  if (Array.isArray(value)) {
    lines.push(`*${value.length}`)
    for (const part of value) add(part, lines)
  } else if (typeof value === 'number' || typeof value === 'bigint') {
    lines.push(`:${value}`)
  } else {
    // Some clients return numbers as strings, if they are asked to.
    const text = String(value).replaceAll('\n', ' ')
    lines.push(/^-?\d+$/.test(text) ? `:${text}` : `$${text}`)
  }
}
