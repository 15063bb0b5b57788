//! Limits over a store in memory. The caller brings the time of each call, and a secret before the first.

use smallvec::SmallVec;
use tidegate_core::limit::wait_for_all;
use tidegate_core::outcome::deciding;
use tidegate_core::{
    AdjustedCharge, Adjustment, Algorithm, Charge, Limit, LimitError, ManualClock, MemoryStats,
    MemoryStore, Micros, Outcome, Outcomes, PermitId, Request, Scope, Timestamp,
};

use crate::given_limits::store_limit;

/// Limits, and the counters of their keys.
pub(crate) struct MemoryLimiter {
    limits: Vec<Limit>,
    scope: Scope,
    max_keys: usize,
    clock: ManualClock,
    secret: [u8; 32],
    store: Option<MemoryStore>,
    holds_permits: bool,
    /// Permits are named by numbers: they stay within this process.
    permits: u64,
}

/// What a limiter is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryQuestion {
    Check,
    Peek,
    Settle,
}

/// Outcomes of all limits, and the number of the permit under which they are held.
pub(crate) struct MemoryAnswer {
    pub(crate) outcomes: Outcomes,
    pub(crate) permit: Option<u64>,
}

/// What one attempt to get a turn achieved.
pub(crate) enum TurnAttempt {
    /// Charged; the request goes on after this time.
    Reserved(MemoryTurn, Micros),
    /// Nothing was charged: to be asked again after this time, or when a permit was released.
    AskAgain(Micros),
    /// Nothing was charged, and it takes this long at the least.
    TooLong(Micros, MemoryAnswer),
    /// Nothing was charged: the cost is above what a limit can ever grant.
    Never(MemoryAnswer),
}

/// A turn that was charged and is not taken yet.
pub(crate) struct MemoryTurn {
    key: Box<str>,
    cost: u64,
    pub(crate) answer: MemoryAnswer,
}

impl MemoryAnswer {
    pub(crate) fn is_allowed(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.allowed)
    }

    /// Which limit decided, and whether all allow.
    pub(crate) fn code(&self) -> u32 {
        let decided_by = u32::try_from(deciding(&self.outcomes)).unwrap_or_default();
        decided_by << 1 | u32::from(self.is_allowed())
    }
}

impl MemoryLimiter {
    pub(crate) fn new(limits: Vec<Limit>, max_keys: usize) -> Self {
        Self {
            holds_permits: limits.iter().any(Limit::is_concurrency),
            limits,
            scope: Scope::new("limiter"),
            max_keys,
            clock: ManualClock::default(),
            secret: [0; 32],
            store: None,
            permits: 0,
        }
    }

    /// Begins to count, with a secret that no client knows.
    pub(crate) fn open(&mut self, secret: [u8; 32]) {
        self.secret = secret;
        self.clear();
    }

    /// Forgets what all keys have used.
    pub(crate) fn clear(&mut self) {
        let store = MemoryStore::builder_with(self.clock.clone(), self.secret);
        self.store = Some(store.max_keys(self.max_keys).build());
    }

    pub(crate) fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Counts by another limit from now on. What was used stays used if it has the same window.
    pub(crate) fn set_limit(
        &mut self,
        count: u64,
        window: Micros,
        algorithm: Algorithm,
    ) -> Result<(), LimitError> {
        self.limits = vec![store_limit(count, window, algorithm)?];
        Ok(())
    }

    /// Whether a request is allowed: charged to one limit without the detour over a list, if there is no other.
    #[inline]
    pub(crate) fn allow(&mut self, key: &str, cost: u64, now: Timestamp) -> bool {
        self.clock.set(now);
        match (&self.limits[..], &self.store) {
            ([limit], Some(store)) if !self.holds_permits => {
                let charge = charge(&self.scope, limit, key, cost);
                store.charge_one(&charge).allowed
            }
            _ => self.ask(MemoryQuestion::Check, key, cost).is_allowed(),
        }
    }

    /// The outcome of a check of the only limit. None if there are others, or permits.
    #[inline]
    pub(crate) fn check_only(&self, key: &str, cost: u64, now: Timestamp) -> Option<Outcome> {
        self.clock.set(now);
        match (&self.limits[..], &self.store) {
            ([limit], Some(store)) if !self.holds_permits => {
                Some(store.charge_one(&charge(&self.scope, limit, key, cost)))
            }
            _ => None,
        }
    }

    pub(crate) fn set_time(&self, now: Timestamp) {
        self.clock.set(now);
    }

    pub(crate) fn ask(&mut self, asked: MemoryQuestion, key: &str, cost: u64) -> MemoryAnswer {
        self.ask_by(None, asked, key, cost)
    }

    /// Asks these limits, or its own.
    fn ask_by(
        &mut self,
        limits: Option<&[Limit]>,
        asked: MemoryQuestion,
        key: &str,
        cost: u64,
    ) -> MemoryAnswer {
        let is_held = self.holds_permits && asked == MemoryQuestion::Check;
        let permit = is_held.then(|| {
            self.permits += 1;
            self.permits
        });
        let limits = limits.unwrap_or(&self.limits);
        let charges = charges(&self.scope, limits, key, cost);
        let request = Request {
            permit: permit.map(|number| PermitId::from_u128(number.into())),
            ..Request::new(&charges)
        };
        let outcomes = match (&self.store, asked) {
            (None, _) => Outcomes::new(),
            (Some(store), MemoryQuestion::Check) => store.charge(&request),
            (Some(store), MemoryQuestion::Peek) => store.peek(&request),
            (Some(store), MemoryQuestion::Settle) => store.settle(&request),
        };
        let is_allowed = outcomes.iter().all(|outcome| outcome.allowed);
        MemoryAnswer {
            outcomes,
            permit: permit.filter(|_| is_allowed),
        }
    }

    /// Forgets what `key` has used.
    pub(crate) fn reset(&self, key: &str) {
        if let Some(store) = &self.store {
            for limit in &self.limits {
                store.forget(&self.scope, limit, key);
            }
        }
    }

    /// Forgets keys that are idle.
    pub(crate) fn sweep(&self, now: Timestamp) {
        if let Some(store) = &self.store {
            // The store keeps an idle key for a second longer, in case that it is used again.
            self.clock.set(now + Micros::SECOND);
            store.sweep();
            self.clock.set(now);
        }
    }

    /// Takes back a cost that was charged at this time.
    pub(crate) fn give_back(&self, key: &str, cost: u64, charged_at: Timestamp) {
        let Some(store) = &self.store else { return };
        let given_back = |limit| AdjustedCharge {
            charge: charge(&self.scope, limit, key, cost),
            charged_at,
            delay: Micros::ZERO,
            actual: 0,
        };
        let charges: SmallVec<[AdjustedCharge<'_>; 4]> =
            self.limits.iter().map(given_back).collect();
        store.adjust(&Adjustment {
            charges: &charges,
            at: None,
            permit: None,
        });
    }

    /// Releases a permit. False if it has ended.
    pub(crate) fn release(&self, permit: u64) -> bool {
        let store = self.store.as_ref();
        store.is_some_and(|store| store.release(PermitId::from_u128(permit.into())))
    }

    pub(crate) fn stats(&self) -> Option<MemoryStats> {
        self.store.as_ref().map(MemoryStore::stats)
    }

    /// Charges the request if it may go on within `max_wait`.
    pub(crate) fn reserve(&mut self, key: &str, cost: u64, max_wait: Micros) -> TurnAttempt {
        let limits = self.limits.iter();
        let patient: Vec<Limit> = limits.map(|limit| limit.patient(max_wait)).collect();
        let answer = self.ask_by(Some(&patient), MemoryQuestion::Check, key, cost);
        let Some(wait) = wait_for_all(&patient, &answer.outcomes, cost) else {
            return TurnAttempt::Never(self.ask(MemoryQuestion::Peek, key, cost));
        };
        let is_denied_by_holders = self
            .limits
            .iter()
            .zip(&answer.outcomes)
            .any(|(limit, outcome)| !outcome.allowed && limit.is_concurrency());
        if answer.is_allowed() {
            let key = key.into();
            let turn = MemoryTurn { key, cost, answer };
            if wait <= max_wait {
                return TurnAttempt::Reserved(turn, wait);
            }
            self.give_back_turn(&turn);
        }
        // Only a permit may end before its time.
        let may_be_freed = is_denied_by_holders && !max_wait.is_zero();
        if wait > max_wait && !may_be_freed {
            return TurnAttempt::TooLong(wait, self.ask(MemoryQuestion::Peek, key, cost));
        }
        TurnAttempt::AskAgain(wait.min(max_wait))
    }

    /// Gives back a turn that is not taken.
    pub(crate) fn give_back_turn(&self, turn: &MemoryTurn) {
        let Some(store) = &self.store else { return };
        let charges = charges(&self.scope, &self.limits, &turn.key, turn.cost);
        let permit = turn.answer.permit;
        let request = Request {
            permit: permit.map(|number| PermitId::from_u128(number.into())),
            ..Request::new(&charges)
        };
        store.give_back(&request, &turn.answer.outcomes);
    }
}

fn charge<'a>(scope: &'a Scope, limit: &'a Limit, key: &'a str, cost: u64) -> Charge<'a> {
    Charge {
        scope,
        limit,
        key,
        cost,
    }
}

fn charges<'a>(
    scope: &'a Scope,
    limits: &'a [Limit],
    key: &'a str,
    cost: u64,
) -> SmallVec<[Charge<'a>; 4]> {
    let charged = limits.iter().map(|limit| charge(scope, limit, key, cost));
    charged.collect()
}
