// The programs of the guide, as they are printed, with the ports of a test.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const guide = readFileSync(join(process.env.TIDEGATE_ROOT, 'docs/guides/node.md'), 'utf8')

/** The program below a heading. `replaced` are parts of it, such as ports, with what takes their place. */
export function program(heading, replaced = {}) {
  const section = guide.split(/^##+ /m).find((part) => part.startsWith(`${heading}\n`))
  let code = section?.match(/^```[jt]s\n([^]*?)^```$/m)?.[1]
  assert.ok(code, `the guide has a program below ${heading}`)
  for (const [part, other] of Object.entries(replaced)) {
    assert.ok(code.includes(part), `the program below ${heading} has ${part}`)
    code = code.replaceAll(part, other)
  }
  return code
}

/** Asks a server that grants 100 requests a minute until it denies one, by bucket or by window. */
export async function assertLimits(address) {
  const began = Date.now()
  for (let granted = 0; ; granted++) {
    const answer = await fetch(address)
    const body = await answer.text()
    if (answer.status === 200) {
      assert.equal(body, 'ok')
      assert.ok(granted <= 101 + (Date.now() - began) / 600, `${granted} requests were granted`)
      continue
    }
    assert.equal(answer.status, 429, body)
    assert.ok(granted >= 100 && Number(answer.headers.get('retry-after')) > 0, `${granted} requests were granted`)
    return
  }
}
