//! The memory store, deciding arrivals in virtual time.

use tidegate_core::{
    Charge, Limit, ManualClock, MemoryStore, Outcome, Request, Retry, Scope, Timestamp,
};

use super::arrivals::Arrival;
use crate::timeline::START;

/// What requests cost that are tried again at their `retry_after`.
pub const RETRIED_COSTS: [u64; 3] = [1, 5, 20];

/// One limit on two memory stores that must agree: one with a clock, as in production, and one that is given the time
/// of each request, which can also be asked about the future.
pub struct MemoryRun {
    clock: ManualClock,
    clocked: MemoryStore,
    timed: MemoryStore,
    scope: Scope,
    limit: Limit,
}

impl MemoryRun {
    /// Stores without any key.
    pub fn new(limit: &Limit) -> Self {
        let clock = ManualClock::new(START);
        let builder = || MemoryStore::builder().max_keys(100_000);
        Self {
            clocked: builder().clock(clock.clone()).build(),
            timed: builder().build(),
            clock,
            scope: Scope::new("accuracy"),
            limit: limit.clone(),
        }
    }

    /// Charges one request of cost 1. None if the two stores do not agree.
    pub fn charge(&self, arrival: Arrival) -> Option<Outcome> {
        let key = arrival.key.to_string();
        self.clock.set(arrival.at);
        let outcome = self.clocked.charge_one(&self.asked(&key, 1));
        let timed = self
            .timed
            .charge(&Request::new(&[self.asked(&key, 1)]).at(arrival.at));
        (timed[0] == outcome).then_some(outcome)
    }

    /// What a request of the arrival's key and this cost would be answered at this time, if no other request came.
    fn would_answer(&self, arrival: Arrival, cost: u64, at: Timestamp) -> Outcome {
        let key = arrival.key.to_string();
        self.timed
            .peek(&Request::new(&[self.asked(&key, cost)]).at(at))[0]
    }

    /// Whether requests are admitted at their `retry_after`, and one microsecond before: one of each of the
    /// [`RETRIED_COSTS`], at the time of an arrival that was denied. None if it was admitted.
    pub fn retries(&self, arrival: Arrival, outcome: &Outcome) -> Vec<(bool, bool)> {
        if outcome.allowed {
            return Vec::new();
        }
        let retry = |cost| {
            let Retry::After(wait) = self.would_answer(arrival, cost, arrival.at).retry else {
                return None;
            };
            let then = arrival.at + wait;
            let before = Timestamp::from_micros(then.as_micros() - 1);
            let would_admit = |at| self.would_answer(arrival, cost, at).allowed;
            Some((would_admit(then), would_admit(before)))
        };
        RETRIED_COSTS.into_iter().filter_map(retry).collect()
    }

    fn asked<'a>(&'a self, key: &'a str, cost: u64) -> Charge<'a> {
        Charge {
            scope: &self.scope,
            limit: &self.limit,
            key,
            cost,
        }
    }
}
