//! The memory store, deciding arrivals in virtual time.

use tidegate_core::{
    Charge, Limit, ManualClock, MemoryStore, Outcome, Request, Retry, Scope, Timestamp,
};

use super::arrivals::Arrival;
use crate::timeline::START;

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

    /// Charges one request. None if the two stores do not agree.
    pub fn charge(&self, arrival: Arrival) -> Option<Outcome> {
        let key = arrival.key.to_string();
        self.clock.set(arrival.at);
        let outcome = self.clocked.charge_one(&self.asked(&key));
        let timed = self
            .timed
            .charge(&Request::new(&[self.asked(&key)]).at(arrival.at));
        (timed[0] == outcome).then_some(outcome)
    }

    /// Whether the request of a denied arrival would be admitted at this time, if no other request came.
    pub fn would_admit(&self, arrival: Arrival, at: Timestamp) -> bool {
        let key = arrival.key.to_string();
        self.timed.peek(&Request::new(&[self.asked(&key)]).at(at))[0].allowed
    }

    /// Whether a denied request is admitted at its `retry_after`, and one microsecond before. None if it was not
    /// denied.
    pub fn retry(&self, arrival: Arrival, outcome: &Outcome) -> Option<(bool, bool)> {
        let Retry::After(wait) = outcome.retry else {
            return None;
        };
        let then = arrival.at + wait;
        let before = Timestamp::from_micros(then.as_micros() - 1);
        Some((
            self.would_admit(arrival, then),
            self.would_admit(arrival, before),
        ))
    }

    fn asked<'a>(&'a self, key: &'a str) -> Charge<'a> {
        Charge {
            scope: &self.scope,
            limit: &self.limit,
            key,
            cost: 1,
        }
    }
}
