//! Adjusts what was charged: gives back, or charges more without asking.

use super::MemoryStore;
use super::forms::{StateStep, Task};
use super::slot::KeyHash;
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::permit::PermitId;
use crate::reservation::{Adjusted, AdjustedCharge, AdjustedCharges, Adjustment};
use crate::store::Request;
use crate::time::{Micros, Timestamp};

/// A charge to be adjusted, with the hash of its key.
#[derive(Clone, Copy)]
pub(super) struct AdjustTask<'a> {
    pub(super) hash: KeyHash,
    pub(super) limit: &'a Limit,
    pub(super) cost: u64,
    pub(super) charged_at: Timestamp,
    pub(super) delay: Micros,
    pub(super) actual: u64,
    pub(super) permit: Option<PermitId>,
}

impl MemoryStore {
    /// Changes what was charged to what it costs after all: [`RemoteStore::adjust`](crate::RemoteStore::adjust) without
    /// the future.
    pub fn adjust(&self, adjustment: &Adjustment<'_>) -> AdjustedCharges {
        let now = self.time(adjustment.at);
        let charges = adjustment.charges.iter();
        charges
            .map(|charge| {
                let task = self.adjust_task(charge, adjustment.permit);
                self.adjust_one(&task, adjustment.at, now).0
            })
            .collect()
    }

    /// Takes back a request that was charged, all of it. False if a key was reset since: what was charged to it went
    /// with the reset.
    pub fn give_back(&self, request: &Request<'_>, outcomes: &[Outcome]) -> bool {
        let now = self.time(request.at);
        let charges = request.given_back(outcomes).unwrap_or_default();
        let mut is_whole = true;
        for charge in &charges {
            let task = self.adjust_task(charge, request.permit);
            is_whole &= self.adjust_one(&task, request.at, now).1;
        }
        is_whole
    }

    fn adjust_task<'a>(
        &self,
        adjusted: &AdjustedCharge<'a>,
        permit: Option<PermitId>,
    ) -> AdjustTask<'a> {
        AdjustTask {
            hash: self.hasher.hash(&adjusted.charge),
            limit: adjusted.charge.limit,
            cost: adjusted.charge.cost,
            charged_at: adjusted.charged_at,
            delay: adjusted.delay,
            actual: adjusted.actual,
            permit,
        }
    }

    /// Adjusts one charge, at a time that was given or read from the clock. Also returns false if the key was reset
    /// since, so that nothing changed.
    pub(super) fn adjust_one(
        &self,
        adjusted: &AdjustTask<'_>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> (Adjusted, bool) {
        let shared = self.stripes.shared();
        let (mut stripe, now) = self.stripes.lock(adjusted.hash, at, now);
        let task = Task {
            hash: adjusted.hash,
            limit: adjusted.limit,
            cost: adjusted.cost,
            now,
            permit: adjusted.permit,
        };
        // What waits in line flows back only when its turn has come.
        let flows_from = adjusted.charged_at + adjusted.delay;
        let ask = Task { cost: 0, ..task };
        let unchanged = |remaining| Adjusted {
            remaining,
            ..Adjusted::default()
        };
        let answer = if adjusted.limit.is_concurrency() {
            // Permits have names: no other is released.
            let outcome = match adjusted.permit {
                Some(_) => stripe.apply(StateStep::GiveBack(flows_from), &task, shared),
                None => stripe.ask(&ask),
            };
            (unchanged(outcome.remaining), true)
        } else if shared.resets.is_after(adjusted.hash, adjusted.charged_at) {
            // Asked under the lock under which the key is reset.
            (unchanged(stripe.ask(&ask).remaining), false)
        } else {
            let done = stripe.adjust(&task, flows_from, adjusted.actual, shared);
            (done, true)
        };
        self.stripes.finish(stripe);
        answer
    }
}
