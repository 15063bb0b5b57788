//! When stored reservations end: by the clock those that were made by it, by the times that are supplied all others.

use crate::{
    Algorithm, Charge, Costs, Limit, MadeReservation, Micros, Rate, Request, ReserveRequest,
    Reserved, ReservedCharge, Scope, SettleAnswer, SettleRequest, Store, Timestamp,
};

use super::START;
use super::reservations::{TOKENS, next_id};

/// How long those last whose time is supplied. The others last longer than any test.
const TTL: Micros = Micros::from_seconds(10);

/// A counter of 100 a day, of which nothing flows back for a while.
struct Counter<'a> {
    store: &'a Store,
    scope: Scope,
    limit: Limit,
}

impl<'a> Counter<'a> {
    fn new(store: &'a Store, scope: Scope) -> Self {
        let rate = Rate::new(100, Micros::DAY);
        let limit = Limit::new(rate, Algorithm::SlidingWindowLog).unwrap();
        Self {
            store,
            scope,
            limit,
        }
    }

    fn charge(&self, cost: u64) -> Charge<'_> {
        Charge {
            scope: &self.scope,
            limit: &self.limit,
            key: "key",
            cost,
        }
    }

    /// Reserves 60.
    async fn reserve(&self, at: Option<Timestamp>) -> Option<MadeReservation> {
        let part = [ReservedCharge {
            charge: self.charge(60),
            unit: &TOKENS,
            unit_cost: 1,
            label: "",
        }];
        let request = ReserveRequest {
            id: next_id(),
            groups: &[&part],
            estimate: &Costs::from(60),
            ttl: if at.is_some() { TTL } else { Micros::HOUR },
            at,
        };
        match self.store.reserve(&request).await.unwrap() {
            Reserved::Decided { made, .. } => made,
            Reserved::TooMany => None,
        }
    }

    /// What was given back by cancelling it, if it was open.
    async fn cancel(&self, made: MadeReservation, at: Option<Timestamp>) -> Option<u64> {
        let request = SettleRequest {
            id: made.id,
            actual: None,
            at,
        };
        match self.store.settle_reservation(&request).await.unwrap() {
            SettleAnswer::Settled { reservation, .. } => {
                Some(reservation.parts[0].adjusted.given_back)
            }
            _ => None,
        }
    }

    async fn is_there(&self, made: MadeReservation) -> bool {
        let found = self.store.look_at_reservation(made.id).await.unwrap();
        found.is_some()
    }

    async fn remaining(&self, at: Option<Timestamp>) -> u64 {
        let charges = [self.charge(0)];
        let request = Request {
            at,
            ..Request::new(&charges)
        };
        self.store.peek(&request).await.unwrap()[0].remaining
    }
}

/// A reservation has ended once a time was supplied that is past its end, also for calls that bring an earlier time or
/// none; and what was given back then is not given back again.
pub(super) async fn ends_by_any_time_that_was_supplied(store: &Store) {
    let at = |seconds| Some(START + Micros::from_seconds(seconds));
    for (index, later) in [None, at(5), at(10), at(15)].into_iter().enumerate() {
        for gives_back in [false, true] {
            let case = format!("{later:?}, {gives_back}");
            let scope = Scope::new(&format!("ends-{index}-{gives_back}"));
            let scope = if gives_back {
                scope.giving_back()
            } else {
                scope
            };
            let counter = Counter::new(store, scope);
            let first = counter.reserve(at(0)).await.unwrap();
            assert!(counter.is_there(first).await, "{case}");
            assert_eq!(counter.remaining(at(9)).await, 40, "{case}");
            assert!(counter.is_there(first).await, "{case}");
            let second = counter.reserve(at(10)).await;
            assert_eq!(second.is_some(), gives_back, "{case}");
            assert!(!counter.is_there(first).await, "{case}");
            assert_eq!(counter.cancel(first, later).await, None, "{case}");
            assert_eq!(counter.remaining(at(10)).await, 40, "{case}");
            // Times that were supplied before say nothing about it.
            let third = Counter::new(store, Scope::new(&format!("again-{index}-{gives_back}")));
            let third_made = third.reserve(at(0)).await.unwrap();
            assert!(third.is_there(third_made).await, "{case}");
            let given_back = third.cancel(third_made, later.filter(|_| index < 2)).await;
            assert_eq!(given_back, Some(60), "{case}");
        }
    }
}

/// No time that is supplied ends what was reserved by the clock, and the clock ends nothing that was reserved at a time
/// that was supplied.
pub(super) async fn keeps_the_clock_and_supplied_times_apart(store: &Store) {
    for gives_back in [false, true] {
        let scope = |name: &str| {
            let scope = Scope::new(&format!("{name}-{gives_back}"));
            if gives_back {
                scope.giving_back()
            } else {
                scope
            }
        };
        let counter = Counter::new(store, scope("by-clock"));
        let made = counter.reserve(None).await.unwrap();
        let past = Some(made.expires_at + Micros::SECOND);
        assert_eq!(counter.remaining(past).await, 40, "{gives_back}");
        assert_eq!(counter.remaining(None).await, 40, "{gives_back}");
        assert_eq!(counter.reserve(None).await, None, "{gives_back}");
        assert_eq!(counter.cancel(made, past).await, Some(60), "{gives_back}");
        assert_eq!(counter.cancel(made, None).await, Some(60), "{gives_back}");
        assert_eq!(counter.remaining(past).await, 100, "{gives_back}");

        let counter = Counter::new(store, scope("supplied"));
        let made = counter.reserve(Some(START)).await.unwrap();
        counter.remaining(None).await;
        assert!(counter.is_there(made).await, "{gives_back}");
        let given_back = counter.cancel(made, None).await;
        assert_eq!(given_back, Some(60), "{gives_back}");
        assert_eq!(counter.remaining(Some(START)).await, 100, "{gives_back}");
    }
}
