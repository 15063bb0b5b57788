//! Limits and timelines of every kind, and a store to run them on.

use proptest::prelude::*;
use tidegate_core::algorithm::Form;
use tidegate_core::{
    Algorithm, Anchor, Charge, Limit, MemoryStore, Micros, Outcome, PermitId, Rate, Request, Scope,
    Timestamp,
};

/// 2026-11-15 00:00:00 UTC, a Sunday in the middle of a month.
pub const START: Timestamp = Timestamp::from_seconds(1_794_700_800);

/// One limit and one key on a memory store of their own, at times that the test gives.
pub struct OneKey {
    /// Where the key's state is.
    pub store: MemoryStore,
    /// The limit in force: a test may change it on the way.
    pub limit: Limit,
    scope: Scope,
    permits: u128,
}

impl OneKey {
    /// The key, never charged.
    pub fn new(limit: &Limit) -> Self {
        let store = MemoryStore::builder().max_keys(100).build();
        Self {
            store,
            scope: Scope::new("one-key"),
            limit: limit.clone(),
            permits: 0,
        }
    }

    /// Charges the key, under a permit of its own.
    pub fn charge(&mut self, cost: u64, now: Timestamp) -> Outcome {
        self.permits += 1;
        let permit = PermitId::from_u128(self.permits);
        self.store
            .charge(&Request::new(&[self.asking(cost)]).at(now).under(permit))[0]
    }

    /// Asks and takes nothing.
    pub fn peek(&self, cost: u64, now: Timestamp) -> Outcome {
        self.store.peek(&Request::new(&[self.asking(cost)]).at(now))[0]
    }

    /// Charges without asking.
    pub fn settle(&self, cost: u64, now: Timestamp) -> Outcome {
        self.store
            .settle(&Request::new(&[self.asking(cost)]).at(now))[0]
    }

    /// Gives back the latest charge.
    pub fn give_back(&self, cost: u64, charged: Outcome, now: Timestamp) {
        let permit = PermitId::from_u128(self.permits);
        let asked = [self.asking(cost)];
        self.store
            .give_back(&Request::new(&asked).at(now).under(permit), &[charged]);
    }

    fn asking(&self, cost: u64) -> Charge<'_> {
        Charge {
            scope: &self.scope,
            limit: &self.limit,
            key: "key",
            cost,
        }
    }

    /// The longest that a state of this limit can matter.
    pub fn memory(&self) -> Micros {
        match self.limit.form() {
            Form::Bucket(bucket) => bucket.to_full(),
            Form::FixedWindow(fixed) => fixed.window().longest(),
            Form::SlidingCounter(counter) => counter.window().times(2),
            Form::SlidingSlots(slots) => slots.slot().times(slots.counted()),
            Form::SlidingLog(log) => log.window(),
            Form::Concurrency(concurrency) => concurrency.lease_ttl(),
        }
    }
}

/// A step of a timeline: so long after the one before, a request of this cost.
#[derive(Debug, Clone, Copy)]
pub struct TimelineStep {
    /// The time since the step before.
    pub pause: Micros,
    /// What it takes.
    pub cost: u64,
}

/// Any limit that people could write, most of them small enough to be hit.
pub fn any_limit() -> impl Strategy<Value = Limit> {
    (any_algorithm(), any_count(), any_window(), any_count()).prop_filter_map(
        "not every algorithm takes every rate",
        |(algorithm, count, window, burst)| {
            let rate = match algorithm {
                Algorithm::Concurrency { .. } => Rate::concurrent(count),
                algorithm if algorithm.is_bucket() => Rate::new(count, window).burst(burst),
                _ => Rate::new(count, window),
            };
            let limit = Limit::new(rate, algorithm).ok()?;
            let fills_in_a_few_years = OneKey::new(&limit).memory() < Micros::DAY.times(1_500);
            fills_in_a_few_years.then_some(limit)
        },
    )
}

/// Any algorithm with any options.
pub fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    let slots = prop::option::of(prop::sample::select(vec![1, 2, 5, 10, 60]));
    prop_oneof![
        prop::sample::select(vec![Anchor::Clock, Anchor::FirstRequest])
            .prop_map(|anchor| Algorithm::FixedWindow { anchor }),
        Just(Algorithm::SlidingWindowLog),
        Just(Algorithm::SlidingWindowCounter),
        (slots, any::<bool>())
            .prop_map(|(slots, strict)| Algorithm::SlidingWindowSlots { slots, strict }),
        prop_oneof![Just(Micros::ZERO), (1..3_000_000_u64).prop_map(Micros::new)]
            .prop_map(|max_delay| Algorithm::TokenBucket { max_delay }),
        any::<bool>().prop_map(|shape| Algorithm::LeakyBucket { shape }),
        (1_000..5_000_000_u64).prop_map(|ttl| Algorithm::Concurrency {
            lease_ttl: Micros::new(ttl)
        }),
    ]
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1..20_u64, 1 => 1..1_000_u64, 1 => 1..10_000_001_u64]
}

fn any_window() -> impl Strategy<Value = Micros> {
    prop_oneof![
        6 => prop::sample::select(vec![1_000, 7_000, 100_000, 1_000_000, 3_000_000])
            .prop_map(Micros::new),
        2 => (1_000..5_000_000_u64).prop_map(Micros::new),
        1 => prop::sample::select(vec![Micros::MINUTE, Micros::DAY, Micros::WEEK, Micros::DAY.times(366)]),
    ]
}

/// Steps in the time and size of `limit`: pauses up to twice its window, costs up to a little more
/// than it can ever grant.
pub fn steps_for(limit: &Limit) -> impl Strategy<Value = Vec<TimelineStep>> + use<> {
    // Long enough for every window; short enough that no timeline runs out of time.
    let memory = OneKey::new(limit)
        .memory()
        .get()
        .min(Micros::DAY.times(366).get());
    let capacity = limit.capacity();
    let pause = prop_oneof![
        3 => Just(0),
        4 => 0..=(memory / capacity.max(1)).saturating_mul(2).max(1),
        2 => 0..=memory,
        1 => memory..=memory.saturating_mul(2),
    ];
    let cost = prop_oneof![
        6 => 1..=(capacity / 5).max(1),
        2 => 0..=capacity,
        1 => Just(capacity.saturating_add(1)),
    ];
    let step = (pause, cost).prop_map(|(pause, cost)| TimelineStep {
        pause: Micros::new(pause),
        cost,
    });
    prop::collection::vec(step, 1..60)
}

/// Any limit, and a timeline for it.
pub fn any_limit_with_steps() -> impl Strategy<Value = (Limit, Vec<TimelineStep>)> {
    any_limit().prop_flat_map(|limit| {
        let steps = steps_for(&limit);
        (Just(limit), steps)
    })
}
