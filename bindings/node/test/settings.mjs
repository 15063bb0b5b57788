// What `scripts/npm` says about this run.

/** Whether fewer random calls and fewer programs are enough. */
export const IS_SHORT = process.env.TIDEGATE_TESTS === 'short'
