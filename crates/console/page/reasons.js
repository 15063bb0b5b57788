// Why a request was denied, in words.

const REASONS = {
  over_limit: ['over the limit', 'The limit is used up.'],
  blocked: ['blocked', 'The rule grants nothing to this client: it is blocked.'],
  missing_attribute: ['attribute missing', 'An attribute that the rule needs is missing.'],
  too_expensive: ['too expensive', 'The cost is more than the limit can ever grant.'],
  store_unavailable: ['store unavailable', 'The store does not answer, and the rule denies then.'],
  invalid_credentials: ['invalid credentials', 'The credentials are not valid, and the rule reads what they should give.'],
  keys_unavailable: ['keys unavailable', 'The credentials cannot be verified: no key was ever loaded.'],
  unpriced: ['no price', 'The rule counts money, and the model has no price.'],
};

/** A reason in a few words. */
export const reasonText = (reason) => REASONS[reason]?.[0] ?? String(reason ?? '–').replaceAll('_', ' ');

/** A reason as a sentence. */
export const reasonSentence = (reason) => REASONS[reason]?.[1] ?? `Reason: ${reason}.`;
