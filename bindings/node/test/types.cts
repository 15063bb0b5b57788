// The same with `require`.

import tidegate = require('tidegate')
import express = require('tidegate/express')

const decision: tidegate.Decision = new tidegate.Limiter('1/minute').check('user_42')
export const store: express.TidegateStore = new express.TidegateStore({ prefix: decision.allowed ? 'a' : 'b' })
