//! The contract of [`RemoteStore`](crate::RemoteStore), as tests that any store has to pass.
//!
//! Requests bring their own time, so nothing waits. Each test has a scope of its own: one store, with
//! an empty state, serves for all of them. A store that breaks the contract panics the test.
//!
//! ```
//! use tidegate_core::{MemoryStore, conformance};
//!
//! # fn block_on(test: impl Future<Output = ()>) {
//! #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! #     assert!(std::pin::pin!(test).poll(&mut context).is_ready());
//! # }
//! // In the tests of a store of your own, with that store instead.
//! block_on(conformance::run_all(MemoryStore::new()));
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a store that fails here has failed the test"
)]

mod model_state;
mod reservation_times;
mod reservations;
mod resets;

#[doc(hidden)]
pub use model_state::ModelState;

pub use reservations::{
    reservations_agree_with_memory, settles_reservations, voids_reservations_by_a_reset,
};
pub use resets::{gives_back_nothing_from_before_a_reset, resets_agree_with_a_model};

use crate::algorithm::fixed_window::MAX_USED;
use crate::{
    Algorithm, Anchor, Charge, Limit, ManualClock, MemoryStore, Micros, Outcomes, PermitId, Rate,
    Request, Retry, Scope, Store, Timestamp,
};

/// When the requests of the suite come. Midnight in UTC, so that no window ends within a second.
const START: Timestamp = Timestamp::from_seconds(1_794_700_800);

/// Every algorithm with a limit of `count` that nothing flows back to within a second.
pub fn limits_of(count: u64) -> Vec<Limit> {
    let algorithms = [
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
        Algorithm::SlidingWindowSlots {
            slots: None,
            strict: true,
        },
        Algorithm::TOKEN_BUCKET,
        Algorithm::LEAKY_BUCKET,
    ];
    let windowed =
        algorithms.map(|algorithm| Limit::new(Rate::per_hour(count), algorithm).unwrap());
    let mut limits = Vec::from(windowed);
    limits.push(Limit::concurrent(count).unwrap());
    limits
}

/// Runs all of the suite.
pub async fn run_all(store: impl Into<Store>) {
    let store = &store.into();
    charges_all_or_none(store).await;
    peeks_without_taking(store).await;
    gives_back_what_was_taken(store).await;
    settles_up_to_a_full_quota(store).await;
    settles_in_full(store).await;
    forgets_one_key_of_one_limit(store).await;
    gives_back_nothing_from_before_a_reset(store).await;
    resets_agree_with_a_model(store, 0x7265_7365, 300).await;
    settles_reservations(store).await;
    voids_reservations_by_a_reset(store).await;
    reservation_times::ends_by_any_time_that_was_supplied(store).await;
    reservation_times::keeps_the_clock_and_supplied_times_apart(store).await;
    reservations_agree_with_memory(store, 0x686f_6c64, 400).await;
    merges_charges_on_one_state(store).await;
    keeps_what_was_used_when_a_limit_changes(store).await;
    keeps_keys_apart_whatever_they_are(store).await;
    holds_permits_until_they_are_released(store).await;
    agrees_with_memory(store, 0x7469_6465, 2_000).await;
}

/// A scope, and a way to write requests in it.
struct Asker<'a> {
    store: &'a Store,
    scope: Scope,
}

impl<'a> Asker<'a> {
    fn new(store: &'a Store, name: &str) -> Self {
        Self {
            store,
            scope: Scope::new(name),
        }
    }

    fn asking<'b>(&'b self, limit: &'b Limit, key: &'b str, cost: u64) -> Charge<'b> {
        Charge {
            scope: &self.scope,
            limit,
            key,
            cost,
        }
    }

    async fn charge(&self, charges: &[Charge<'_>], permit: u128) -> Outcomes {
        let request = Request::new(charges)
            .at(START)
            .under(PermitId::from_u128(permit));
        self.store.charge(&request).await.unwrap()
    }

    async fn remaining(&self, limit: &Limit, key: &str) -> u64 {
        let charges = [self.asking(limit, key, 0)];
        self.store
            .peek(&Request::new(&charges).at(START))
            .await
            .unwrap()[0]
            .remaining
    }
}

/// One denial leaves every state untouched, and outcomes come in the order of the charges.
pub async fn charges_all_or_none(store: &Store) {
    let asker = Asker::new(store, "all-or-none");
    let (few, many) = (limits_of(2), limits_of(5));
    for (permit, (few, many)) in (1..).zip(few.iter().zip(&many)) {
        let name = few.algorithm().name();
        let charges = [asker.asking(many, "many", 2), asker.asking(few, "few", 2)];
        let allowed = asker.charge(&charges, permit * 10).await;
        assert!(allowed.iter().all(|outcome| outcome.allowed), "{name}");
        assert_eq!(
            (allowed[0].remaining, allowed[1].remaining),
            (3, 0),
            "{name}"
        );

        let denied = asker.charge(&charges, permit * 10 + 1).await;
        assert_eq!(
            (denied[0].allowed, denied[1].allowed),
            (true, false),
            "{name}"
        );
        assert_eq!(denied[0].remaining, 3, "{name}: over its untouched state");
        assert!(matches!(denied[1].retry, Retry::After(_)), "{name}");
        assert_eq!(asker.remaining(many, "many").await, 3, "{name}");

        let never = asker
            .charge(&[asker.asking(few, "few", 3)], permit * 10 + 2)
            .await;
        assert_eq!(
            (never[0].allowed, never[0].retry),
            (false, Retry::Never),
            "{name}"
        );
    }
}

/// A peek returns what a charge would return, over the state as it is.
pub async fn peeks_without_taking(store: &Store) {
    let asker = Asker::new(store, "peek");
    for limit in limits_of(5) {
        for _ in 0..3 {
            let charges = [
                asker.asking(&limit, "key", 5),
                asker.asking(&limit, "other", 6),
            ];
            let peeked = store.peek(&Request::new(&charges).at(START)).await.unwrap();
            assert_eq!((peeked[0].allowed, peeked[0].remaining), (true, 5));
            assert_eq!((peeked[1].allowed, peeked[1].remaining), (false, 5));
            assert_eq!(peeked[0].reset_at, START, "an untouched key");
        }
    }
}

/// Once, and only what was allowed.
pub async fn gives_back_what_was_taken(store: &Store) {
    let asker = Asker::new(store, "give-back");
    for limit in limits_of(5) {
        let (kept, charges) = (
            [asker.asking(&limit, "key", 2)],
            [asker.asking(&limit, "key", 3)],
        );
        asker.charge(&kept, 1).await;
        let request = Request::new(&charges)
            .at(START)
            .under(PermitId::from_u128(2));
        let outcomes = store.charge(&request).await.unwrap();
        assert!(outcomes[0].allowed);
        let denied = store.charge(&request).await.unwrap();
        store.give_back(&request, &denied).await.unwrap();
        assert_eq!(
            asker.remaining(&limit, "key").await,
            0,
            "nothing was taken by a denial"
        );
        store.give_back(&request, &outcomes).await.unwrap();
        let name = limit.algorithm().name();
        assert_eq!(asker.remaining(&limit, "key").await, 3, "{name}");
    }
}

/// Without asking, and never into more debt than a full quota.
pub async fn settles_up_to_a_full_quota(store: &Store) {
    let asker = Asker::new(store, "settle");
    for limit in limits_of(5) {
        if matches!(limit.algorithm(), Algorithm::Concurrency { .. }) {
            continue;
        }
        let name = limit.algorithm().name();
        for (cost, fits, left) in [(2, true, 3), (u64::MAX, false, 0), (1, false, 0)] {
            let charges = [asker.asking(&limit, "key", cost)];
            let settled = store
                .settle(&Request::new(&charges).at(START))
                .await
                .unwrap();
            assert_eq!(
                (settled[0].allowed, settled[0].remaining),
                (fits, left),
                "{name}"
            );
        }
    }
}

/// In a scope that is charged in full, a window of the clock counts what is beyond its limit; others take what fits.
pub async fn settles_in_full(store: &Store) {
    let scope = Scope::new("settle-in-full").charged_in_full();
    let asker = Asker { store, scope };
    let of = |count| Limit::fixed_window(count, Micros::MINUTE.into(), Anchor::Clock).unwrap();
    let largest = of(u64::from(u32::MAX));
    #[rustfmt::skip]
    let table = [
        // limit                        key         cost        fits    left            exceeded
        (of(5),                         "small",    3,          true,   2,              0),
        (of(5),                         "small",    4,          false,  0,              2),
        (of(5),                         "small",    1,          false,  0,              3),
        (of(0),                         "nothing",  7,          false,  0,              7),
        (largest.clone(),               "large",    4_000_000_000, true, 294_967_295,   0),
        (largest.clone(),               "large",    294_967_295, true,  0,              0),
        (largest.clone(),               "large",    1,          false,  0,              1),
        (largest,                       "large",    u64::MAX,   false,  0,              MAX_USED - u64::from(u32::MAX)),
        ("5/minute".parse().unwrap(),   "bucket",   7,          false,  0,              0),
        (Limit::new(Rate::per_minute(5), Algorithm::SlidingWindowLog).unwrap(), "log", 7, false, 0, 0),
    ];
    for (limit, key, cost, fits, left, exceeded) in table {
        let charges = [asker.asking(&limit, key, cost)];
        let settled = store
            .settle(&Request::new(&charges).at(START))
            .await
            .unwrap()[0];
        let expected = (fits, left, exceeded);
        let found = (settled.allowed, settled.remaining, settled.exceeded);
        assert_eq!(found, expected, "{limit} {key} {cost}");
        let charges = [asker.asking(&limit, key, 0)];
        let peeked = store.peek(&Request::new(&charges).at(START)).await.unwrap()[0];
        assert_eq!(
            (peeked.remaining, peeked.exceeded),
            (left, exceeded),
            "{limit}"
        );
    }
}

/// As if it had never been charged, and nothing else with it.
pub async fn forgets_one_key_of_one_limit(store: &Store) {
    let asker = Asker::new(store, "forget");
    let limits = limits_of(5);
    for limit in &limits {
        for (permit, key) in [(1, "key"), (2, "other")] {
            asker.charge(&[asker.asking(limit, key, 5)], permit).await;
        }
    }
    for limit in &limits {
        store.forget(&asker.scope, limit, "key").await.unwrap();
        store.forget(&asker.scope, limit, "unused").await.unwrap();
        assert_eq!(asker.remaining(limit, "key").await, 5);
        assert_eq!(asker.remaining(limit, "other").await, 0);
    }
}

/// Two charges of one request on one state are one charge of their sum.
pub async fn merges_charges_on_one_state(store: &Store) {
    let asker = Asker::new(store, "merge");
    for limit in limits_of(5) {
        let charges = [2, 0, 3].map(|cost| asker.asking(&limit, "key", cost));
        let merged = asker.charge(&charges, 1).await;
        let name = limit.algorithm().name();
        assert!(
            merged
                .iter()
                .all(|outcome| outcome.allowed && outcome.remaining == 0),
            "{name}"
        );
        let denied = asker.charge(&charges[..1], 2).await;
        assert!(!denied[0].allowed, "{name}");
    }
}

/// A limit with the same window counts on.
pub async fn keeps_what_was_used_when_a_limit_changes(store: &Store) {
    let asker = Asker::new(store, "change");
    for (before, after) in limits_of(5).iter().zip(&limits_of(8)) {
        asker.charge(&[asker.asking(before, "key", 4)], 1).await;
        assert_eq!(
            asker.remaining(after, "key").await,
            4,
            "{}",
            before.algorithm().name()
        );
    }
}

/// No choice of key meets another, leaves its place or fails.
pub async fn keeps_keys_apart_whatever_they_are(store: &Store) {
    let asker = Asker::new(store, "apart {of} all");
    let long = "k".repeat(10_000);
    let keys = [
        "", " ", "a", "A", "a:b", "a|b", "{a}", "}{", "a\nb", "a\0b", "ключ", "🔑", &long,
    ];
    let limit = Limit::new(Rate::per_hour(5), Algorithm::TOKEN_BUCKET).unwrap();
    for (index, key) in (1..).zip(keys) {
        asker
            .charge(&[asker.asking(&limit, key, index % 5 + 1)], 1)
            .await;
    }
    for (index, key) in (1..).zip(keys) {
        assert_eq!(
            asker.remaining(&limit, key).await,
            5 - (index % 5 + 1),
            "`{key}`"
        );
    }
}

/// One permit for all concurrency limits of a request.
pub async fn holds_permits_until_they_are_released(store: &Store) {
    let asker = Asker::new(store, "permits");
    let (few, many) = (Limit::concurrent(1).unwrap(), Limit::concurrent(5).unwrap());
    let charges = [asker.asking(&few, "user", 1), asker.asking(&many, "all", 1)];
    let [permit, another, unknown] = [1, 2, 3].map(|number| PermitId::from_u128(number << 64));
    let request = Request::new(&charges).at(START).under(permit);
    let taken = store.charge(&request).await.unwrap();
    assert!(taken.iter().all(|outcome| outcome.allowed));
    let other = Request::new(&charges).at(START).under(another);
    let denied = store.charge(&other).await.unwrap();
    assert_eq!(
        denied[0].retry,
        Retry::After(Micros::MINUTE),
        "when the permit ends"
    );
    assert_eq!((denied[1].allowed, denied[1].remaining), (true, 4));

    assert!(store.renew(permit).await.unwrap());
    assert!(store.release(permit).await.unwrap());
    assert!(!store.release(permit).await.unwrap(), "it has ended");
    assert!(!store.renew(permit).await.unwrap());
    assert!(!store.release(unknown).await.unwrap(), "it is unknown");
    assert_eq!(asker.remaining(&few, "user").await, 1);
    assert_eq!(asker.remaining(&many, "all").await, 5);
}

/// Random requests of one to three charges on a few keys: the same answers as from memory, to the
/// microsecond.
pub async fn agrees_with_memory(store: &Store, seed: u64, steps: usize) {
    let memory = MemoryStore::builder_with(ManualClock::new(START), [0; 32]).build();
    let scopes = [
        Scope::new("agrees"),
        Scope::new("in-full").charged_in_full(),
    ];
    let wide = [0, 7, u64::from(u32::MAX)]
        .map(|count| Limit::fixed_window(count, Micros::WEEK.into(), Anchor::Epoch).unwrap());
    let limits = [limits_of(3), limits_of(20), wide.to_vec()].concat();
    let keys = ["one", "two", "three"];
    let mut random = Random(seed | 1);
    let mut now = START;
    let mut kept: Vec<(Vec<Charge<'_>>, Outcomes, PermitId)> = Vec::new();
    for step in 0..steps {
        now = match random.below(10) {
            0 => now - Micros::new(random.below(90_000_000)),
            1..4 => now,
            4..9 => now + Micros::new(random.below(500_000_000)),
            _ => now + Micros::new(random.below(5_000_000_000)),
        };
        let scope = random.one_of(&scopes);
        let charges: Vec<_> = (0..=random.below(3))
            .map(|_| Charge {
                scope,
                limit: random.one_of(&limits),
                key: random.one_of::<&str>(&keys),
                cost: random.below(5),
            })
            .collect();
        let permit = PermitId::from_u128(u128::from(random.next()) + 1);
        let request = Request::new(&charges).at(now).under(permit);
        let case = format!("step {step} of seed {seed:#x}: {request:?}");
        match random.below(12) {
            10 => {
                for charge in &charges {
                    let (limit, key) = (charge.limit, charge.key);
                    store.forget(scope, limit, key).await.unwrap();
                    memory.forget(scope, limit, key);
                }
            }
            11 => {
                // Of a request long before, and of keys that were reset since.
                if let Some((charges, outcomes, permit)) = kept.pop() {
                    let request = Request::new(&charges).at(now).under(permit);
                    store.give_back(&request, &outcomes).await.unwrap();
                    memory.give_back(&request, &outcomes);
                }
            }
            0 => assert_eq!(
                store.peek(&request).await.unwrap(),
                memory.peek(&request),
                "{case}"
            ),
            1 => assert_eq!(
                store.settle(&request).await.unwrap(),
                memory.settle(&request),
                "{case}"
            ),
            give_back => {
                let previewed = store.preview(&request).await.unwrap();
                let outcomes = store.charge(&request).await.unwrap();
                assert_eq!(previewed, outcomes, "the preview of {case}");
                assert_eq!(outcomes, memory.charge(&request), "{case}");
                if give_back == 2 {
                    store.give_back(&request, &outcomes).await.unwrap();
                    memory.give_back(&request, &outcomes);
                } else if give_back == 3 {
                    kept.push((charges, outcomes, permit));
                }
            }
        }
    }
}

/// xorshift64*: the same numbers for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(choices.len() as u64)).unwrap_or(0);
        &choices[index]
    }
}
