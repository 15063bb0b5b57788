//! The counters of this instance alone, for rules that go on by themselves without the store.
//!
//! What is used here stays used until it expires, also when the store is back in between, so that a
//! store that comes and goes grants nothing twice.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tidegate_core::{
    Adjusted, AdjustedCharge, Adjustment, Charge, Limit, MemoryStore, Outcome, Outcomes, PermitId,
    RemoteStore, Request, Scope, Timestamp,
};

use super::owed::{Debt, Owed};
use super::pipeline::Verb;
use crate::rules::Share;

/// The counters, and the charges that are not reconciled yet.
pub(super) struct Local {
    counters: MemoryStore,
    /// Locked while a request is charged here: a key that was never charged is first raised to what
    /// the store said, and no other request may come between.
    owed: Mutex<Owed>,
    /// How many keys owe something, to see without the lock whether any does.
    waiting: AtomicUsize,
    /// How many reservations may be open that were made without the store.
    pub(super) max_reservations: u64,
}

/// A limit asked to pay for a request with what this instance may grant of it.
pub(super) struct LocalCharge<'a> {
    pub(super) share: &'a Arc<Share>,
    pub(super) key: &'a str,
    pub(super) cost: u64,
}

/// A request that the store could not answer.
pub(super) struct LocalRequest<'a> {
    pub(super) charges: &'a [LocalCharge<'a>],
    pub(super) at: Option<Timestamp>,
    pub(super) permit: Option<PermitId>,
    pub(super) verb: Verb,
}

/// A charge made here that costs something else after all.
pub(super) struct LocalAdjustment<'a> {
    pub(super) charge: LocalCharge<'a>,
    pub(super) outcome: &'a Outcome,
    pub(super) actual: u64,
    pub(super) at: Option<Timestamp>,
    pub(super) permit: Option<PermitId>,
}

impl LocalCharge<'_> {
    fn of<'c>(&'c self, limit: &'c Limit) -> Charge<'c> {
        Charge {
            scope: &self.share.scope,
            limit,
            key: self.key,
            cost: self.cost,
        }
    }
}

impl Local {
    pub(super) fn new(counters: MemoryStore) -> Self {
        Self {
            max_reservations: counters.stats().max_reservations as u64,
            counters,
            owed: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Charges every share or none, and records the charges to reconcile; or only peeks.
    pub(super) fn charge(
        &self,
        request: &LocalRequest<'_>,
        store: Option<&dyn RemoteStore>,
    ) -> Outcomes {
        let of_part = |charge| LocalCharge::of(charge, &charge.share.part);
        let charges: SmallVec<[Charge<'_>; 4]> = request.charges.iter().map(of_part).collect();
        let asked = Request {
            charges: &charges,
            at: request.at,
            permit: request.permit,
        };
        let mut owed = self.owed.lock();
        for charge in request.charges {
            self.raise(charge, request.at, store);
        }
        let outcomes = match request.verb {
            Verb::Peek => return self.counters.peek(&asked),
            Verb::Preview => return self.counters.preview(&asked),
            Verb::Charge => self.counters.charge(&asked),
            Verb::Take => self.counters.settle(&asked),
        };
        let is_taken = request.verb == Verb::Take;
        if is_taken || outcomes.iter().all(|outcome| outcome.allowed) {
            let taken = request.charges.iter().filter(|charge| charge.cost > 0);
            for charge in taken.filter(|charge| !charge.share.whole.is_concurrency()) {
                let debt = Debt {
                    share: Arc::clone(charge.share),
                    amount: charge.cost,
                    at: request.at,
                    not_before: None,
                };
                owed.add(charge.key, debt);
            }
            self.waiting.store(owed.len(), Ordering::Release);
        }
        outcomes
    }

    /// Changes a charge made here to what it costs after all, also in the charges to reconcile. What is reconciled
    /// already stays charged in the store.
    pub(super) fn adjust(&self, adjusted: &LocalAdjustment<'_>) -> Adjusted {
        let LocalAdjustment { charge, at, .. } = adjusted;
        let (scope, whole) = (&charge.share.scope, &charge.share.whole);
        let taken = charge.of(&charge.share.part);
        let mut owed = self.owed.lock();
        let done = self.counters.adjust(&Adjustment {
            charges: &[AdjustedCharge::new(
                taken,
                adjusted.outcome,
                adjusted.actual,
            )],
            at: *at,
            permit: adjusted.permit,
        });
        let done = done.first().copied().unwrap_or_default();
        if done.overrun > 0 {
            let debt = Debt {
                share: Arc::clone(charge.share),
                amount: done.overrun,
                at: *at,
                not_before: None,
            };
            owed.add(charge.key, debt);
        } else if done.given_back > 0
            && let Some(debt) = owed.take(scope, whole, charge.key)
        {
            let amount = debt.amount.saturating_sub(done.given_back);
            if amount > 0 {
                owed.add(charge.key, Debt { amount, ..debt });
            }
        }
        self.waiting.store(owed.len(), Ordering::Release);
        done
    }

    /// Charges a cost that is known only now, and records it to reconcile.
    pub(super) fn settle(&self, charge: &LocalCharge<'_>, at: Option<Timestamp>) {
        let mut owed = self.owed.lock();
        self.counters.settle(&Request {
            charges: &[charge.of(&charge.share.part)],
            at,
            permit: None,
        });
        let debt = Debt {
            share: Arc::clone(charge.share),
            amount: charge.cost,
            at,
            not_before: None,
        };
        owed.add(charge.key, debt);
        self.waiting.store(owed.len(), Ordering::Release);
    }

    /// The answer of a share to a charge, without taking it.
    pub(super) fn peek(&self, charge: &LocalCharge<'_>, at: Option<Timestamp>) -> Option<Outcome> {
        let asked = Request {
            charges: &[charge.of(&charge.share.part)],
            at,
            permit: None,
        };
        self.counters.peek(&asked).first().copied()
    }

    /// Raises the usage of a key to its share of the usage that the store last reported.
    fn raise(
        &self,
        charge: &LocalCharge<'_>,
        at: Option<Timestamp>,
        store: Option<&dyn RemoteStore>,
    ) {
        let (whole, part) = (&charge.share.whole, &charge.share.part);
        if whole.is_concurrency() {
            return;
        }
        let Some(used) = store.and_then(|store| store.last_used(&charge.of(whole))) else {
            return;
        };
        let expected = match u128::from(whole.capacity()) {
            // What grants nothing is used as far as it is.
            0 => u128::from(used),
            whole => (u128::from(used) * u128::from(part.capacity())).div_ceil(whole),
        };
        let expected = u64::try_from(expected).unwrap_or(u64::MAX);
        let known = self.used(&charge.of(part), at);
        let missing = Charge {
            cost: expected.saturating_sub(known),
            ..charge.of(part)
        };
        if missing.cost > 0 {
            self.counters.settle(&Request {
                charges: &[missing],
                at,
                permit: None,
            });
        }
    }

    /// What a charge's state has used here of its limit.
    fn used(&self, charge: &Charge<'_>, at: Option<Timestamp>) -> u64 {
        let asked = Request {
            charges: &[Charge { cost: 0, ..*charge }],
            at,
            permit: None,
        };
        let asked = self.counters.peek(&asked);
        asked.first().map_or(charge.limit.capacity(), Outcome::used)
    }

    /// Whether nothing is left to reconcile.
    pub(super) fn is_reconciled(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Takes out what a charge's state owes.
    pub(super) fn take(&self, charge: &Charge<'_>) -> Option<Debt> {
        let mut owed = self.owed.lock();
        let debt = owed.take(charge.scope, charge.limit, charge.key);
        self.waiting.store(owed.len(), Ordering::Release);
        debt
    }

    /// Takes out what has been owed for the longest time.
    pub(super) fn take_oldest(&self) -> Option<(Arc<str>, Debt)> {
        let mut owed = self.owed.lock();
        let oldest = owed.take_oldest();
        self.waiting.store(owed.len(), Ordering::Release);
        oldest
    }

    /// Puts a charge back that could not be reconciled.
    pub(super) fn put_back(&self, key: &str, debt: Debt) {
        let mut owed = self.owed.lock();
        owed.add(key, debt);
        self.waiting.store(owed.len(), Ordering::Release);
    }

    /// How much of a debt still counts at `at`: no more than what is used here. What has expired since is
    /// nothing to the store, and neither is what has flowed back at this instance's own rate: the whole
    /// rate may be used up by others.
    pub(super) fn still_owed(&self, key: &str, debt: &Debt, at: Option<Timestamp>) -> u64 {
        let used_of = |limit| {
            let charge = Charge {
                scope: &debt.share.scope,
                limit,
                key,
                cost: 0,
            };
            self.used(&charge, at)
        };
        // The whole limit, too: there may have been fewer instances when it was used.
        let used = used_of(&debt.share.whole).max(used_of(&debt.share.part));
        debt.amount.min(used)
    }

    /// How many keys owe something, and how many had to be forgotten.
    pub(super) fn owed(&self) -> (usize, u64) {
        let owed = self.owed.lock();
        (owed.len(), owed.lost())
    }

    /// Forgets what a key has used, and owes.
    pub(super) fn forget(&self, scope: &Scope, limit: &Limit, key: &str) {
        let mut owed = self.owed.lock();
        owed.take(scope, limit, key);
        self.waiting.store(owed.len(), Ordering::Release);
        self.counters.forget(scope, limit, key);
    }

    pub(super) fn release(&self, permit: PermitId) -> bool {
        self.counters.release(permit)
    }

    pub(super) fn renew(&self, permit: PermitId) -> bool {
        self.counters.renew(permit)
    }

    pub(super) fn sweep_part(&self, parts: NonZeroUsize) {
        self.counters.sweep_part(parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{ManualClock, Micros};

    #[test]
    fn a_sweep_removes_idle_counters_of_this_instance() {
        let clock = ManualClock::new(Timestamp::from_seconds(1_000));
        let local = Local::new(MemoryStore::builder().clock(clock.clone()).build());
        let limit: Limit = "10/minute".parse().unwrap();
        let share = Share::of(&Scope::new("rule"), &limit, 1);
        let charge = LocalCharge {
            share: &share,
            key: "key",
            cost: 1,
        };
        local.settle(&charge, None);
        for (after, keys) in [(Micros::SECOND, 1), (Micros::MINUTE, 0)] {
            clock.advance(after);
            local.sweep_part(NonZeroUsize::MIN);
            assert_eq!(local.counters.stats().keys, keys, "after {after:?}");
        }
    }
}
