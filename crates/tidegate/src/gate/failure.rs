//! What happens to a request while the store cannot answer: what each of its rules says.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{LeaseId, Limit, Micros, Outcome, Retry, Store, Timestamp};

use super::local::{LocalCharge, LocalRequest};
use super::{Claim, Claims, Demand, Gate, Slot, Slots, fill};
use crate::rules::{OnStoreFailure, RuleSet, Share, Shares, add_one};

/// When a client should try again that was denied because nobody could decide.
const TRY_AGAIN: Micros = Micros::SECOND;

/// What the store could not answer.
pub(super) struct Without<'r, 'a> {
    pub(super) rules: &'r RuleSet,
    pub(super) claims: &'r Claims<'a>,
    pub(super) at: Option<Timestamp>,
    pub(super) lease: Option<LeaseId>,
}

impl<S: Store> Gate<S> {
    /// Answers the chosen claims, which the store was asked about together, as their rules say.
    pub(super) fn go_on(
        &self,
        without: &Without<'_, '_>,
        chosen: impl Fn(&Claim<'_>) -> bool,
        slots: &mut Slots,
    ) {
        let (rules, claims) = (without.rules, without.claims);
        let now = without.at.unwrap_or_else(|| self.clock.now());
        let choice = |rule: usize| rules.at(rule).on_store_failure();
        let mut is_denied = false;
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
        let parts = Parts::of(without, self.instances());
        let local = claims
            .iter()
            .filter(|claim| chosen(claim) && is_local(claim.rule));
        let charges: SmallVec<[LocalCharge<'_>; 4]> =
            local.flat_map(|claim| charges(&parts, claim)).collect();
        let request = LocalRequest {
            charges: &charges,
            at: without.at,
            lease: without.lease,
            is_denied,
        };
        let outcomes = self.local.charge(&request, &self.store);
        let is_mine = |slot: &Slot| {
            let is_asked = |claim: &Claim<'_>| claim.rule == slot.rule && chosen(claim);
            slot.is_charged && claims.iter().any(is_asked)
        };
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
                OnStoreFailure::Deny => slot.outcome = unknown(false, capacity, now),
                OnStoreFailure::Local => slot.share = share().map(Arc::clone),
            }
        }
    }

    /// How many instances share the store: as it last said, else as this gate was told.
    pub(super) fn instances(&self) -> u64 {
        let known = self.store.instances();
        known.unwrap_or(self.instances).max(1)
    }
}

/// What this instance may grant of each limit by itself.
struct Parts {
    shares: Arc<Shares>,
    /// Of limits that move: by the place of the rule, of what they were when the request came.
    moved: SmallVec<[(usize, Arc<Share>); 1]>,
}

impl Parts {
    fn of(without: &Without<'_, '_>, instances: u64) -> Self {
        let rules = without.rules;
        let moved = |claim: &Claim<'_>| {
            let (scope, limit) = (rules.at(claim.rule).scope(), claim.moved.as_ref()?);
            Some((claim.rule, Share::of(scope, limit, instances)))
        };
        Self {
            shares: rules.shares(instances),
            moved: without.claims.iter().filter_map(moved).collect(),
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
