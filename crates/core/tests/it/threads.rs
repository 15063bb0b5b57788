//! Many threads, few keys: nothing is admitted twice, and no thread waits for ever.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_core::{
    Charge, Limit, ManualClock, MemoryStore, Micros, PermitId, Request, Scope, Timestamp,
};
use tidegate_testkit::conformance::limits_of;

const THREADS: u64 = 64;
const NOW: Timestamp = Timestamp::from_seconds(1_794_700_800);

fn store() -> MemoryStore {
    MemoryStore::builder().clock(ManualClock::new(NOW)).build()
}

/// Runs `act(thread, turn)` in all threads at once.
fn race(turns: u64, act: impl Fn(u64, u64) + Sync) {
    let start = Barrier::new(usize::try_from(THREADS).unwrap());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, act) = (&start, &act);
            scope.spawn(move || {
                start.wait();
                for turn in 0..turns {
                    act(thread, turn);
                }
            });
        }
    });
}

#[test]
fn sixty_four_threads_on_one_key_admit_exactly_the_limit() {
    const LIMIT: u64 = 1_000;
    for limit in limits_of(LIMIT) {
        let (store, scope) = (store(), Scope::new("one"));
        let admitted = AtomicU64::new(0);
        race(50, |thread, turn| {
            let charges = [Charge {
                scope: &scope,
                limit: &limit,
                key: "key",
                cost: 1,
            }];
            let permit = PermitId::from_u128(u128::from(thread * 1_000 + turn));
            if store.charge(&Request::new(&charges).under(permit))[0].allowed {
                admitted.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(
            admitted.load(Ordering::Relaxed),
            LIMIT,
            "{}",
            limit.algorithm().name()
        );
        assert_eq!(store.stats().keys, 1);
    }
}

/// Each request charges two keys out of a few, in either order, in stripes that differ or do not.
#[test]
fn several_limits_at_once_are_all_charged_or_none() {
    const KEYS: u64 = 7;
    for limit in limits_of(100) {
        let (store, scope) = (store(), Scope::new("several"));
        let names: Vec<_> = (0..KEYS).map(|key| format!("key-{key}")).collect();
        let admitted: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        race(40, |thread, turn| {
            let first = (thread * 31 + turn * 17) % KEYS;
            let second = (first + 1 + (thread + turn) % (KEYS - 1)) % KEYS;
            let charge = |key: u64| {
                let key = &names[usize::try_from(key).unwrap()];
                Charge {
                    scope: &scope,
                    limit: &limit,
                    key,
                    cost: 1,
                }
            };
            let charges = [charge(first), charge(second)];
            let permit = PermitId::from_u128(u128::from(thread * 1_000 + turn + 1));
            let outcomes = store.charge(&Request::new(&charges).under(permit));
            if outcomes.iter().all(|outcome| outcome.allowed) {
                for key in [first, second] {
                    admitted[usize::try_from(key).unwrap()].fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        for (name, admitted) in names.iter().zip(&admitted) {
            let charges = [Charge {
                scope: &scope,
                limit: &limit,
                key: name,
                cost: 0,
            }];
            let left = store.peek(&Request::new(&charges))[0].remaining;
            let admitted = admitted.load(Ordering::Relaxed);
            let name = limit.algorithm().name();
            assert_eq!(
                admitted + left,
                100,
                "{name}: what was admitted is what was charged"
            );
        }
    }
}

#[test]
fn permits_that_are_taken_and_released_never_exceed_the_limit() {
    let (store, scope) = (store(), Scope::new("permits"));
    let limit = Limit::concurrent(5).unwrap();
    let holding = AtomicU64::new(0);
    race(200, |thread, turn| {
        let permit = PermitId::from_u128(u128::from(thread * 1_000 + turn + 1));
        let charges = [Charge {
            scope: &scope,
            limit: &limit,
            key: "key",
            cost: 1,
        }];
        if store.charge(&Request::new(&charges).under(permit))[0].allowed {
            assert!(holding.fetch_add(1, Ordering::SeqCst) < 5);
            thread::yield_now();
            holding.fetch_sub(1, Ordering::SeqCst);
            assert!(store.release(permit));
        }
    });
    assert_eq!(store.stats().permits, 0);
}

/// A clock that moves while everyone charges: still no more than the bucket grants.
#[test]
fn a_moving_clock_admits_no_more_than_flows_back() {
    let clock = ManualClock::new(NOW);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let (scope, limit) = (
        Scope::new("moving"),
        "1000/second burst 10".parse::<Limit>().unwrap(),
    );
    let admitted = AtomicU64::new(0);
    race(500, |thread, _| {
        if thread == 0 {
            clock.advance(Micros::new(500));
        }
        let charge = Charge {
            scope: &scope,
            limit: &limit,
            key: "key",
            cost: 1,
        };
        if store.charge_one(&charge).allowed {
            admitted.fetch_add(1, Ordering::Relaxed);
        }
    });
    // 500 steps of half a millisecond let 250 flow back, on top of the burst.
    assert!(admitted.load(Ordering::Relaxed) <= 260);
    assert!(admitted.load(Ordering::Relaxed) >= 10);
}

/// The system's clock, which every thread reads for itself, and a bucket that is full again within
/// microseconds: the difference between two threads must not look like a clock that was set back.
#[test]
fn clocks_that_differ_between_threads_admit_nothing_twice() {
    let store = MemoryStore::new();
    let (scope, limit) = (
        Scope::new("skew"),
        "50000/second burst 1".parse::<Limit>().unwrap(),
    );
    let charge = Charge {
        scope: &scope,
        limit: &limit,
        key: "key",
        cost: 1,
    };
    let admitted = AtomicU64::new(0);
    let started = store.now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while store.now().since(started) < Micros::from_millis(300) {
                    if store.charge_one(&charge).allowed {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let flowed = store.now().since(started).get() * 50_000 / 1_000_000;
    let admitted = admitted.load(Ordering::Relaxed);
    // One for the burst, and one for a clock of another thread that is a little ahead of this one's.
    assert!(
        admitted <= flowed + 2,
        "{admitted} admitted, {flowed} flowed back"
    );
}
