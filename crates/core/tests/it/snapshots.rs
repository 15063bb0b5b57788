//! A store that goes on from a snapshot decides as the one that wrote it would have.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use tidegate_core::{
    Algorithm, Anchor, Charge, Limit, ManualClock, MemoryStore, Micros, Outcome, PermitId, Rate,
    Request, Restored, Scope, SnapshotError,
};
use tidegate_testkit::timeline::{OneKey, START, any_limit, any_limit_with_steps};

fn snapshot(store: &MemoryStore) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = store.snapshot(&mut bytes).unwrap();
    assert_eq!(written.bytes, bytes.len() as u64);
    bytes
}

fn restored(store: &MemoryStore, max_keys: usize, clock: &ManualClock) -> (MemoryStore, Restored) {
    let builder = MemoryStore::builder()
        .max_keys(max_keys)
        .clock(clock.clone());
    builder.restore(&snapshot(store)[..]).unwrap()
}

/// A limit of every algorithm that grants ten.
fn ten_of_each() -> Vec<Limit> {
    let rate = Rate::new(10, Micros::HOUR);
    let algorithms = [
        Algorithm::TOKEN_BUCKET,
        Algorithm::LEAKY_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
    ];
    let limits = algorithms.map(|algorithm| Limit::new(rate, algorithm).unwrap());
    let concurrency = Algorithm::Concurrency {
        lease_ttl: Micros::HOUR,
    };
    let holders = Rate::concurrent(10);
    let others = [
        Limit::new(holders, concurrency).unwrap(),
        Limit::portable_bucket(10, Micros::HOUR, 10).unwrap(),
        "10/month".parse().unwrap(),
    ];
    limits.into_iter().chain(others).collect()
}

struct Keys {
    store: MemoryStore,
    clock: ManualClock,
    scope: Scope,
}

impl Keys {
    fn new(max_keys: usize) -> Self {
        let clock = ManualClock::new(START);
        let builder = MemoryStore::builder().max_keys(max_keys);
        Self {
            store: builder.clock(clock.clone()).build(),
            clock,
            scope: Scope::new("snapshots"),
        }
    }

    fn charge(&self, limit: &Limit, key: &str, cost: u64, permit: u128) -> Outcome {
        let charges = [Charge {
            scope: &self.scope,
            limit,
            key,
            cost,
        }];
        let request = Request::new(&charges).under(PermitId::from_u128(permit));
        self.store.charge(&request)[0]
    }

    fn remaining(&self, limit: &Limit, key: &str) -> u64 {
        self.charge(limit, key, 0, 0).remaining
    }

    /// The same, restarted with room for so many keys.
    fn restart(&mut self, max_keys: usize) -> Restored {
        let (store, restored) = restored(&self.store, max_keys, &self.clock);
        self.store = store;
        restored
    }
}

/// What a test does to two stores, of which one is restarted.
#[derive(Debug, Clone)]
enum Act {
    Pause(u64),
    Charge { keys: [u8; 2], cost: u64 },
    GiveBack,
    Settle { key: u8, cost: u64 },
    Release,
    Renew,
    Forget { key: u8 },
    Restart { max_keys: usize },
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        17 => any_act_but_a_restart(),
        3 => prop::sample::select(vec![100, 5_000, 200_000, 10_000_000])
            .prop_map(|max_keys| Act::Restart { max_keys }),
    ]
}

fn any_act_but_a_restart() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..4_000_000_u64).prop_map(Act::Pause),
        8 => (any::<[u8; 2]>(), 0..6_u64).prop_map(|(keys, cost)| Act::Charge { keys, cost }),
        1 => Just(Act::GiveBack),
        1 => (any::<u8>(), 0..30_u64).prop_map(|(key, cost)| Act::Settle { key, cost }),
        1 => Just(Act::Release),
        1 => Just(Act::Renew),
        1 => any::<u8>().prop_map(|key| Act::Forget { key }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_timeline_is_decided_the_same_with_restarts_and_without(
        (limit, steps) in any_limit_with_steps(), restarts in prop::collection::vec(any::<bool>(), 60),
    ) {
        let (mut with, mut without) = (OneKey::new(&limit), OneKey::new(&limit));
        let mut now = START;
        for (step, restart) in steps.into_iter().zip(restarts) {
            if restart {
                let builder = MemoryStore::builder().max_keys(100);
                with.store = builder.restore(&snapshot(&with.store)[..]).unwrap().0;
            }
            now = now + step.pause;
            let charged = with.charge(step.cost, now);
            prop_assert_eq!(charged, without.charge(step.cost, now));
            prop_assert_eq!(with.peek(1, now), without.peek(1, now));
            if charged.allowed && step.cost % 3 == 2 {
                with.give_back(step.cost, charged, now);
                without.give_back(step.cost, charged, now);
            }
        }
    }

    /// Several limits and keys in one store, with its own clock, which may be set back during the first
    /// restart; in stores of any size.
    #[test]
    fn a_store_decides_the_same_with_restarts_and_without(
        limits in prop::collection::vec(any_limit(), 3),
        before in prop::collection::vec(any_act_but_a_restart(), 1..40),
        back in prop_oneof![Just(0), 1_000_000..8_000_000_u64],
        after in prop::collection::vec(any_act(), 1..40),
    ) {
        // Limits of one shape share a state, which is idle sooner by one of them than by another.
        let shapes: HashSet<u64> = limits.iter().map(Limit::shape).collect();
        prop_assume!(shapes.len() == limits.len());
        let scope = Scope::new("acts");
        let clock = ManualClock::new(START);
        let new = || MemoryStore::builder().max_keys(100).clock(clock.clone()).build();
        let (mut with, without) = (new(), new());
        let (mut permits, mut last): (u128, Option<(Charge<'_>, Outcome, PermitId)>) = (0, None);
        let names: Vec<String> = (0..256).map(|key| (key % 5).to_string()).collect();
        let charge = |key: u8, cost| Charge {
            scope: &scope,
            limit: &limits[usize::from(key) % 3],
            key: &names[usize::from(key)],
            cost,
        };
        let restart = before.len();
        let acts = before.into_iter().chain([Act::Restart { max_keys: 500 }]).chain(after);
        for (number, act) in acts.enumerate() {
            let gives_back = matches!(act, Act::GiveBack | Act::Release | Act::Settle { .. } | Act::Forget { .. });
            if back > 0 && gives_back {
                // A state of which nothing is used any more is like a fresh one, but for the time of its
                // last change. It is left out, and so forgets that a clock was ahead.
                continue;
            }
            match act {
                // An idle key goes after a second, sooner in one store than in the other, and would count
                // again once the clock is set back.
                Act::Pause(span) if back > 0 && number < restart => {
                    clock.advance(Micros::new(span % 20_000));
                }
                Act::Pause(span) => clock.advance(Micros::new(span)),
                Act::Charge { keys, cost } => {
                    permits += 1;
                    let charges = keys.map(|key| charge(key, cost));
                    let permit = PermitId::from_u128(permits);
                    let request = Request::new(&charges).under(permit);
                    let outcomes = with.charge(&request);
                    prop_assert_eq!(&outcomes, &without.charge(&request));
                    last = outcomes.iter().all(|outcome| outcome.allowed)
                        .then(|| (charges[0], outcomes[0], permit));
                }
                Act::GiveBack => if let Some((charge, outcome, permit)) = last.take() {
                    let charges = [charge];
                    let request = Request::new(&charges).under(permit);
                    with.give_back(&request, &[outcome]);
                    without.give_back(&request, &[outcome]);
                },
                // It has nothing to settle.
                Act::Settle { key, .. } if charge(key, 0).limit.window().is_none() => {}
                Act::Settle { key, cost } => {
                    let charges = [charge(key, cost)];
                    let request = Request::new(&charges);
                    prop_assert_eq!(with.settle(&request), without.settle(&request));
                }
                Act::Release => {
                    let permit = PermitId::from_u128(permits);
                    prop_assert_eq!(with.release(permit), without.release(permit));
                }
                // Under a limit whose clock was ahead the permit ends later than under the others. Only a store
                // that was not restarted still knows those that have ended.
                Act::Renew if back > 0 => {}
                Act::Renew => {
                    let permit = PermitId::from_u128(permits);
                    prop_assert_eq!(with.renew(permit), without.renew(permit));
                }
                Act::Forget { key } => {
                    let Charge { limit, key, .. } = charge(key, 0);
                    with.forget(&scope, limit, key);
                    without.forget(&scope, limit, key);
                    // What is charged in the instant of a reset counts as charged before it, and is not given back. A
                    // store that has left the key out of its snapshot has no reset to remember.
                    clock.advance(Micros::new(1));
                }
                Act::Restart { max_keys } => {
                    let bytes = snapshot(&with);
                    if number == restart {
                        clock.set(with.now() - Micros::new(back));
                    }
                    let builder = MemoryStore::builder().max_keys(max_keys);
                    with = builder.clock(clock.clone()).restore(&bytes[..]).unwrap().0;
                }
            }
            for key in 0..15 {
                let charges = [charge(key, 1)];
                let request = Request::new(&charges);
                prop_assert_eq!(with.peek(&request), without.peek(&request));
            }
        }
    }
}

#[test]
fn every_algorithm_goes_on_where_it_was() {
    let mut keys = Keys::new(1_000);
    for (index, limit) in ten_of_each().iter().enumerate() {
        assert!(keys.charge(limit, "some", 7, 1).allowed, "{index}");
        assert!(keys.charge(limit, "all", 10, 2).allowed, "{index}");
        assert!(!keys.charge(limit, "all", 1, 3).allowed, "{index}");
    }
    let restored = keys.restart(5_000);
    assert_eq!((restored.keys, restored.expired), (20, 0));
    assert_eq!((restored.evicted, restored.written_at), (0, START));
    for (index, limit) in ten_of_each().iter().enumerate() {
        assert_eq!(keys.remaining(limit, "some"), 3, "{index}");
        assert_eq!(keys.remaining(limit, "all"), 0, "{index}");
        assert_eq!(keys.remaining(limit, "other"), 10, "{index}");
    }
}

#[test]
fn a_permit_is_renewed_and_released_after_a_restart() {
    let limit = Limit::concurrent(2).unwrap();
    let mut keys = Keys::new(100);
    let [first, second] = [1, 2].map(PermitId::from_u128);
    keys.charge(&limit, "key", 1, first.as_u128());
    keys.charge(&limit, "key", 1, second.as_u128());
    keys.clock.advance(Micros::from_seconds(50));
    keys.restart(100);
    assert_eq!(keys.store.stats().permits, 2);
    assert!(keys.store.renew(first));
    // The second has ended, the first was renewed.
    keys.clock.advance(Micros::from_seconds(50));
    keys.restart(100);
    assert!(!keys.store.renew(second));
    assert_eq!(keys.remaining(&limit, "key"), 1);
    assert!(keys.store.release(first));
    assert!(!keys.store.release(first));
    keys.restart(100);
    assert!(!keys.store.release(first));
    assert_eq!(keys.remaining(&limit, "key"), 2);
}

#[test]
fn keys_that_have_become_like_fresh_ones_are_left_out() {
    let mut keys = Keys::new(1_000);
    let (short, long): (Limit, Limit) = ("10/second".parse().unwrap(), "10/day".parse().unwrap());
    let short_log = Limit::new(Rate::per_second(10), Algorithm::SlidingWindowLog).unwrap();
    for key in ["a", "b"] {
        for limit in [&short, &long, &short_log] {
            keys.charge(limit, key, 10, 0);
        }
    }
    keys.clock.advance(Micros::MINUTE);
    let restored = keys.restart(1_000);
    assert_eq!((restored.keys, restored.expired), (2, 4));
    assert_eq!(keys.remaining(&long, "a"), 0);
    assert_eq!(keys.remaining(&short, "a"), 10);
}

#[test]
fn a_smaller_store_takes_the_keys_that_would_be_missed_the_most() {
    let mut keys = Keys::new(10_000);
    let limit: Limit = "100/hour".parse().unwrap();
    for key in 0..2_000 {
        keys.charge(&limit, &format!("little-{key}"), 1, 0);
    }
    for key in 0..50 {
        keys.charge(&limit, &format!("much-{key}"), 90, 0);
    }
    let restored = keys.restart(100);
    assert_eq!((restored.keys, restored.evicted), (100, 1_950));
    assert_eq!(keys.store.stats().keys, 100);
    for key in 0..50 {
        assert_eq!(keys.remaining(&limit, &format!("much-{key}")), 10, "{key}");
    }
    let restored = keys.restart(1);
    assert_eq!((restored.keys, keys.store.stats().keys), (1, 1));
}

#[test]
fn a_clock_that_went_back_gives_nothing_and_freezes_nothing() {
    for limit in ten_of_each() {
        for back in [Micros::from_seconds(60), Micros::DAY.times(400)] {
            let mut keys = Keys::new(100);
            keys.charge(&limit, "key", 10, 1);
            keys.clock.set(START - back);
            keys.restart(100);
            assert_eq!(keys.remaining(&limit, "key"), 0, "{limit} {back}");
            assert!(!keys.charge(&limit, "key", 1, 2).allowed, "{limit} {back}");
            // Twice the time that the limit remembers is enough for all of it.
            keys.clock.advance(Micros::DAY.times(63));
            keys.restart(100);
            assert_eq!(keys.remaining(&limit, "key"), 10, "{limit} {back}");
        }
    }
}

#[test]
fn damage_of_any_byte_and_a_missing_end_are_noticed() {
    let keys = Keys::new(100);
    for limit in ten_of_each() {
        keys.charge(&limit, "key", 3, 1);
    }
    let whole = snapshot(&keys.store);
    let restore = |bytes: &[u8]| MemoryStore::builder().max_keys(100).restore(bytes);
    assert!(restore(&whole).is_ok());
    for index in 0..whole.len() {
        let error = restore(&whole[..index]).unwrap_err();
        assert!(matches!(error, SnapshotError::Damaged), "cut at {index}");
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[index] ^= 1 << bit;
            assert!(restore(&damaged).is_err(), "bit {bit} of byte {index}");
        }
    }
    assert!(restore(&[&whole[..], b"\0"].concat()).is_err());
    assert!(restore(&[&whole[..], &whole].concat()).is_err());
}

#[test]
fn changes_are_those_of_requests_that_took_something_or_gave_it_back() {
    let keys = Keys::new(100);
    for limit in ten_of_each() {
        let mut last = keys.store.changes();
        let mut has_changed = || {
            let now = keys.store.changes();
            now != std::mem::replace(&mut last, now)
        };
        assert!(!has_changed());
        keys.charge(&limit, "key", 9, 1);
        assert!(has_changed(), "a new key");
        keys.charge(&limit, "key", 1, 2);
        assert!(has_changed(), "a charge");
        keys.charge(&limit, "key", 1, 3);
        keys.remaining(&limit, "key");
        keys.remaining(&limit, "other");
        snapshot(&keys.store);
        assert!(!has_changed(), "denied, asked, and written: {limit}");
        keys.store.forget(&keys.scope, &limit, "key");
        assert!(has_changed(), "forgotten");
    }
    // When the state is like a fresh one is kept exactly for this window, and rounded up for those above.
    let rate = Rate::new(10, Micros::new(1 << 26));
    let anchor = Anchor::FirstRequest;
    let limit = Limit::new(rate, Algorithm::FixedWindow { anchor }).unwrap();
    keys.charge(&limit, "key", 10, 1);
    let before = keys.store.changes();
    assert!(!keys.charge(&limit, "key", 1, 1).allowed);
    assert_eq!(keys.store.changes(), before, "denied");
    let limit = Limit::concurrent(2).unwrap();
    keys.charge(&limit, "key", 1, 7);
    for act in [MemoryStore::renew, MemoryStore::release] {
        let before = keys.store.changes();
        assert!(act(&keys.store, PermitId::from_u128(7)));
        assert_ne!(keys.store.changes(), before);
    }
}

#[test]
fn a_permit_keeps_its_whole_name_and_is_forgotten_when_it_has_ended() {
    let mut keys = Keys::new(100);
    let limit = Limit::concurrent(2).unwrap();
    let name = u128::MAX / 3;
    keys.charge(&limit, "key", 1, name);
    keys.restart(100);
    assert!(keys.store.renew(PermitId::from_u128(name)));
    keys.clock.advance(Micros::DAY);
    keys.charge(&limit, "key", 1, 7);
    assert_eq!(keys.store.stats().permits, 1, "the new one");
}

#[test]
fn as_many_slots_as_a_limit_can_have_are_kept() {
    let mut keys = Keys::new(100);
    let algorithm = Algorithm::SlidingWindowSlots {
        slots: Some(3_600),
        strict: true,
    };
    let limit = Limit::new(Rate::new(10, Micros::HOUR), algorithm).unwrap();
    keys.charge(&limit, "key", 4, 0);
    assert_eq!(keys.restart(100).keys, 1);
    assert_eq!(keys.remaining(&limit, "key"), 6);
}

#[test]
fn states_that_are_larger_than_what_is_copied_at_once_are_written_whole() {
    let mut keys = Keys::new(100);
    let rate = Rate::new(10_000, Micros::HOUR);
    let log = Limit::new(rate, Algorithm::SlidingWindowLog).unwrap();
    let used = [("large", 5_000), ("larger", 7_000), ("small", 3)];
    for (index, (key, count)) in used.into_iter().enumerate() {
        for _ in 0..count {
            // Each at a time of its own.
            keys.clock.advance(Micros::new(1));
            assert!(keys.charge(&log, key, 1, 0).allowed);
        }
        assert_eq!(keys.restart(100).keys, index as u64 + 1);
    }
    for (key, count) in used {
        assert_eq!(keys.remaining(&log, key), 10_000 - count, "{key}");
    }
}

/// A writer that is full after so many bytes.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_write_is_an_error_and_the_store_goes_on() {
    let keys = Keys::new(100_000);
    let limit: Limit = "10/hour".parse().unwrap();
    for key in 0..10_000 {
        keys.charge(&limit, &key.to_string(), 1, 0);
    }
    for room in [0, 8, 20, 1_000, 100_000, 200_000] {
        let error = keys.store.snapshot(Full(room)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
    assert_eq!(keys.remaining(&limit, "1"), 9);
    assert_eq!(restored(&keys.store, 100_000, &keys.clock).1.keys, 10_000);
}

/// Each counter in a snapshot is one that there was while it was written, whatever comes and goes next
/// to it.
#[test]
fn a_snapshot_among_charges_has_each_counter_as_it_was_meanwhile() {
    const WATCHED: usize = 200;
    let keys = Keys::new(1_000_000);
    let month: Limit = "1000000/month".parse().unwrap();
    let log = Limit::new(
        Rate::new(1_000_000, Micros::DAY),
        Algorithm::SlidingWindowLog,
    )
    .unwrap();
    let short: Limit = "1/second".parse().unwrap();
    let counts: Vec<AtomicU64> = (0..WATCHED).map(|_| AtomicU64::new(0)).collect();
    let begun: Vec<AtomicU64> = (0..WATCHED).map(|_| AtomicU64::new(0)).collect();
    let names: Vec<String> = (0..WATCHED).map(|key| format!("watched-{key}")).collect();
    let limit_of = |key: usize| if key.is_multiple_of(4) { &log } else { &month };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (keys, counts, begun, names, is_over) = (&keys, &counts, &begun, &names, &is_over);
            let short = &short;
            scope.spawn(move || {
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) {
                    for key in (thread..WATCHED).step_by(2) {
                        begun[key].fetch_add(1, Ordering::SeqCst);
                        assert!(keys.charge(limit_of(key), &names[key], 1, 0).allowed);
                        counts[key].fetch_add(1, Ordering::SeqCst);
                        // Others come, and go again: tables grow, shrink and close gaps.
                        keys.charge(short, &format!("{thread} {round}"), 1, 0);
                        round += 1;
                        if round % 1_000 == 0 {
                            keys.clock.advance(Micros::MILLISECOND);
                        }
                        if round % 30_000 == 0 {
                            keys.clock.advance(Micros::from_seconds(3));
                            keys.store.sweep();
                        }
                    }
                }
            });
        }
        let read = |counts: &[AtomicU64]| -> Vec<u64> {
            let load = |count: &AtomicU64| count.load(Ordering::SeqCst);
            counts.iter().map(load).collect()
        };
        while read(&counts).contains(&0) {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            let before = read(&counts);
            let bytes = snapshot(&keys.store);
            let after = read(&begun);
            let builder = MemoryStore::builder().clock(keys.clock.clone());
            let (store, _) = builder.restore(&bytes[..]).unwrap();
            for key in 0..WATCHED {
                let charges = [Charge {
                    scope: &keys.scope,
                    limit: limit_of(key),
                    key: &names[key],
                    cost: 0,
                }];
                let used = 1_000_000 - store.peek(&Request::new(&charges))[0].remaining;
                if !(before[key]..=after[key]).contains(&used) {
                    is_over.store(true, Ordering::Relaxed);
                    panic!("{used} of {} to {}", before[key], after[key]);
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
