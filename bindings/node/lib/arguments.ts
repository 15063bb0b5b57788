// What keys, costs and times are accepted.

/** The largest cost. */
const MAX_COST = 2 ** 50

/** The longest time of a timer. A longer one would end immediately. */
export const LONGEST_TIMER = 2 ** 31 - 1

/** A missing identity must not become a counter that clients share. */
export function notAKey(key: unknown): TypeError {
  return new TypeError(`\`${shown(key)}\` is not a key; give a string`)
}

/** A key after a prefix. Checked before they are joined: `undefined` joined with a prefix is a string. */
export function prefixed(prefix: string, key: unknown): string {
  if (typeof key !== 'string') throw notAKey(key)
  return prefix === '' ? key : prefix + key
}

/** Throws unless this is a cost. */
export function checkCost(cost: unknown): void {
  if (typeof cost !== 'number') throw new TypeError(`\`${shown(cost)}\` is not a cost; give a whole number`)
  if (!Number.isInteger(cost) || cost < 0 || cost > MAX_COST) {
    throw new RangeError(`\`${cost}\` is not a cost; give a whole number from 0 to ${MAX_COST}`)
  }
}

/** The milliseconds of an option that has a default. */
export function milliseconds(name: string, given: unknown, otherwise: number): number {
  if (given === undefined) return otherwise
  if (typeof given !== 'number' || !(given >= 0)) {
    throw new RangeError(`\`${shown(given)}\` is not a value of \`${name}\`; give milliseconds, 0 or more`)
  }
  return given
}

/** What a clock shows, in milliseconds. */
export function checkedTime(now: unknown): number {
  if (typeof now !== 'number' || Number.isNaN(now)) {
    throw new TypeError(`\`now\` returned \`${shown(now)}\`; return Unix milliseconds`)
  }
  return now
}

export function shown(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : 'an object'
  return String(value)
}
