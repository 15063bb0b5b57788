//! What happens to a request while the store cannot answer: what each of its rules says.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Limit, Micros, Outcome, Retry, Store, Timestamp};

use super::local::{LocalCharge, LocalRequest};
use super::{Asking, Claim, Demand, Gate, Slot, Slots, fill};
use crate::reason::Reason;
use crate::rules::{OnStoreFailure, Share, Shares, add_one};

/// When a client should try again that was denied because nobody could decide.
const TRY_AGAIN: Micros = Micros::SECOND;

impl<S: Store> Gate<S> {
    /// Answers the chosen claims, which the store was asked about together, as their rules say.
    /// Those that are denied already are asked and not charged.
    pub(super) fn go_on(
        &self,
        asking: &Asking<'_, '_>,
        chosen: impl Fn(&Claim<'_>) -> bool,
        slots: &mut Slots,
        mut is_denied: bool,
    ) {
        let (rules, claims) = (asking.rules, asking.claims);
        let now = asking.at.unwrap_or_else(|| self.clock.now());
        let choice = |rule: usize| rules.at(rule).on_store_failure();
        for claim in claims.iter().filter(|claim| chosen(claim)) {
            // Who denies everything needs no store for it.
            if matches!(claim.demand, Demand::Nothing) {
                is_denied = true;
                continue;
            }
            is_denied |= choice(claim.rule) == OnStoreFailure::Deny;
            add_one(&rules.at(claim.rule).counts().degraded[choice(claim.rule) as usize]);
        }
        let is_local = |rule| choice(rule) == OnStoreFailure::Local;
        let parts = Parts::of(asking, self.instances());
        let local = claims
            .iter()
            .filter(|claim| chosen(claim) && is_local(claim.rule));
        let charges: SmallVec<[LocalCharge<'_>; 4]> =
            local.flat_map(|claim| charges(&parts, claim)).collect();
        let request = LocalRequest {
            charges: &charges,
            at: asking.at,
            lease: asking.lease,
            is_denied,
        };
        let outcomes = self.local.charge(&request, &self.store);
        let is_mine = |slot: &Slot| slot.is_charged && chosen(&claims[slot.claim]);
        fill(
            slots,
            |slot| is_mine(slot) && is_local(slot.rule),
            &outcomes,
        );
        for slot in slots.iter_mut().filter(|slot| is_mine(slot)) {
            slot.is_degraded = true;
            let capacity = slot.limit(rules).map_or(0, Limit::capacity);
            let share = || parts.limits(slot.rule, slot.grant).get(slot.limit);
            match choice(slot.rule) {
                OnStoreFailure::Allow => slot.outcome = unknown(true, capacity, now),
                OnStoreFailure::Deny => {
                    slot.outcome = unknown(false, capacity, now);
                    slot.failure = Some(Reason::StoreUnavailable);
                }
                OnStoreFailure::Local => {
                    slot.share = share().map(Arc::clone);
                    let cost = match &claims[slot.claim].demand {
                        Demand::Charge { cost, .. } => *cost,
                        Demand::Nothing => 0,
                    };
                    // More than the share can ever grant, and no more than the whole limit.
                    if slot.outcome.retry == Retry::Never && cost <= capacity {
                        slot.failure = Some(Reason::StoreUnavailable);
                    }
                }
            }
        }
    }

    /// How many instances share the store: as it last said, and at least as many as are configured.
    pub(super) fn instances(&self) -> u64 {
        let known = self.store.instances().unwrap_or(1);
        known.max(self.instances).max(1)
    }
}

/// What this instance may grant of each limit by itself.
struct Parts {
    shares: Arc<Shares>,
    /// Of limits that move: by the place of the rule, of what they were when the request came.
    moved: SmallVec<[(usize, Arc<Share>); 1]>,
}

impl Parts {
    fn of(asking: &Asking<'_, '_>, instances: u64) -> Self {
        let rules = asking.rules;
        let moved = |claim: &Claim<'_>| {
            let (scope, limit) = (rules.at(claim.rule).scope(), claim.moved.as_ref()?);
            Some((claim.rule, Share::of(scope, limit, instances)))
        };
        Self {
            shares: rules.shares(instances),
            moved: asking.claims.iter().filter_map(moved).collect(),
        }
    }

    fn limits(&self, rule: usize, grant: usize) -> &[Arc<Share>] {
        match self.moved.iter().find(|(place, _)| *place == rule) {
            Some((_, share)) => std::slice::from_ref(share),
            None => self.shares.limits(rule, grant),
        }
    }
}

/// The charges of one claim on this instance's shares, in the order of its limits.
fn charges<'c>(
    parts: &'c Parts,
    claim: &'c Claim<'_>,
) -> impl Iterator<Item = LocalCharge<'c>> + use<'c> {
    let (shares, key, cost): (_, &str, _) = match &claim.demand {
        Demand::Charge { key, cost } => (parts.limits(claim.rule, claim.grant), key, *cost),
        Demand::Nothing => (&[][..], "", 0),
    };
    shares
        .iter()
        .map(move |share| LocalCharge { share, key, cost })
}

/// The answer of a limit of which nobody knows what was used.
pub(super) fn unknown(allowed: bool, capacity: u64, now: Timestamp) -> Outcome {
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
