//! What happens to a request while the store cannot answer: what each of its rules says.

use tidegate_core::{
    LeaseId, Limit, Micros, Outcome, Request, Retry, Store, StoreError, Timestamp,
};

use super::{Claims, Demand, Gate, Slots, charges, fill};
use crate::attributes::Attributes;
use crate::rules::{OnStoreFailure, RuleSet, add_one};

/// When a client should try again that was denied because nobody could decide.
const TRY_AGAIN: Micros = Micros::SECOND;

impl<S: Store> Gate<S> {
    pub(super) fn go_on_without(
        &self,
        _error: &StoreError,
        rules: &RuleSet,
        claims: &Claims<'_>,
        slots: &mut Slots,
        attributes: &Attributes<'_>,
        lease: Option<LeaseId>,
    ) {
        let now = attributes.time().unwrap_or_else(|| self.clock.now());
        let choice = |rule: usize| rules.at(rule).on_store_failure();
        let enforced = || claims.iter().filter(|claim| !claim.is_shadow);
        for claim in enforced() {
            add_one(&rules.at(claim.rule).counts().degraded[choice(claim.rule) as usize]);
        }
        let is_denied = enforced().any(|claim| {
            matches!(claim.demand, Demand::Nothing) || choice(claim.rule) == OnStoreFailure::Deny
        });
        let is_local = |rule| choice(rule) == OnStoreFailure::Local;
        let charges = charges(rules, claims, |claim| {
            !claim.is_shadow && is_local(claim.rule)
        });
        let request = Request {
            charges: &charges,
            at: attributes.time(),
            lease,
        };
        let outcomes = if is_denied {
            self.local.peek(&request)
        } else {
            self.local.charge(&request)
        };
        let mine = |slot: &super::Slot| slot.is_charged && !slot.is_shadow;
        fill(slots, |slot| mine(slot) && is_local(slot.rule), &outcomes);
        for slot in slots.iter_mut().filter(|slot| mine(slot)) {
            slot.is_degraded = true;
            let limit = match &rules.at(slot.rule).grants()[slot.grant] {
                crate::rules::Grant::Limits(limits) => limits.get(slot.limit),
                _ => None,
            };
            let capacity = limit.map_or(0, Limit::capacity);
            match choice(slot.rule) {
                OnStoreFailure::Allow => slot.outcome = unknown(true, capacity, now),
                OnStoreFailure::Deny => slot.outcome = unknown(false, capacity, now),
                OnStoreFailure::Local => {}
            }
        }
    }
}

/// The answer of a limit of which nobody knows what was used.
fn unknown(allowed: bool, capacity: u64, now: Timestamp) -> Outcome {
    Outcome {
        allowed,
        limit: capacity,
        remaining: if allowed { capacity } else { 0 },
        retry: if allowed {
            Retry::Now
        } else {
            Retry::After(TRY_AGAIN)
        },
        reset_at: now,
        delay: Micros::ZERO,
        at: now,
    }
}
