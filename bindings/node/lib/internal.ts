// Names of what limiters offer to the stores of this package, and to nothing else. The same in both module formats.

/** When a decision was charged, in Unix milliseconds. */
export const chargedAt: unique symbol = Symbol.for('tidegate.chargedAt') as never
/** Takes back a cost: `(key, cost, chargedAt)`. */
export const giveBack: unique symbol = Symbol.for('tidegate.giveBack') as never
/** Forgets all keys. */
export const forgetAll: unique symbol = Symbol.for('tidegate.forgetAll') as never
