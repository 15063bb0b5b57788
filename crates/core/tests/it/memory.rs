//! What the memory store does with the room that it has.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::num::NonZeroUsize;

use tidegate_core::{
    Algorithm, Charge, Limit, ManualClock, MemoryStore, Micros, Outcome, PermitId, Rate, Request,
    Scope, Timestamp,
};

const NOW: Timestamp = Timestamp::from_seconds(1_794_700_800);

struct Fixture {
    store: MemoryStore,
    clock: ManualClock,
    scope: Scope,
}

impl Fixture {
    fn with_room_for(max_keys: usize) -> Self {
        let clock = ManualClock::new(NOW);
        let store = MemoryStore::builder()
            .max_keys(max_keys)
            .clock(clock.clone())
            .build();
        Self {
            store,
            clock,
            scope: Scope::new("memory"),
        }
    }

    fn charge(&self, limit: &Limit, key: &str, cost: u64) -> Outcome {
        self.store.charge_one(&Charge {
            scope: &self.scope,
            limit,
            key,
            cost,
        })
    }

    fn remaining(&self, limit: &Limit, key: &str) -> u64 {
        let charges = [Charge {
            scope: &self.scope,
            limit,
            key,
            cost: 0,
        }];
        self.store.peek(&Request::new(&charges))[0].remaining
    }
}

fn ten_per_minute() -> Limit {
    "10/minute".parse().unwrap()
}

#[test]
fn a_full_store_lets_go_of_the_key_nearest_to_fresh() {
    let fixture = Fixture::with_room_for(3);
    let limit = ten_per_minute();
    fixture.charge(&limit, "a lot", 9);
    fixture.charge(&limit, "a little", 1);
    fixture.charge(&limit, "some", 5);

    fixture.charge(&limit, "new", 2);
    assert_eq!(fixture.remaining(&limit, "a little"), 10, "it went");
    assert_eq!(fixture.remaining(&limit, "some"), 5);
    assert_eq!(fixture.remaining(&limit, "a lot"), 1);
    assert_eq!(fixture.remaining(&limit, "new"), 8);
    let stats = fixture.store.stats();
    assert_eq!((stats.keys, stats.evicted, stats.expired), (3, 1, 0));
}

#[test]
fn a_key_that_is_being_denied_goes_last() {
    let fixture = Fixture::with_room_for(2);
    let limit = ten_per_minute();
    let longer: Limit = "10/hour".parse().unwrap();
    fixture.charge(&limit, "denied", 10);
    assert!(!fixture.charge(&limit, "denied", 1).allowed);
    fixture.charge(&longer, "live", 10);

    // The denied key is nearer to fresh, and stays all the same.
    fixture.charge(&longer, "new", 1);
    assert_eq!(fixture.remaining(&limit, "denied"), 0);
    assert_eq!(fixture.remaining(&longer, "live"), 10, "it went");
}

#[test]
fn idle_keys_go_first_and_are_not_counted_as_evicted() {
    let fixture = Fixture::with_room_for(2);
    let limit = ten_per_minute();
    fixture.charge(&limit, "idle", 1);
    fixture.clock.advance(Micros::SECOND.times(7));
    fixture.charge(&limit, "live", 1);
    fixture.charge(&limit, "new", 1);
    let stats = fixture.store.stats();
    assert_eq!((stats.keys, stats.evicted, stats.expired), (2, 0, 1));
    assert_eq!(fixture.remaining(&limit, "live"), 9);
}

#[test]
fn a_store_never_holds_more_than_its_maximum() {
    let fixture = Fixture::with_room_for(50_000);
    let limit = ten_per_minute();
    for key in 0..120_000 {
        fixture.charge(&limit, &format!("key-{key}"), 1);
        assert!(fixture.store.stats().keys <= 50_000);
    }
    let stats = fixture.store.stats();
    assert_eq!((stats.keys, stats.evicted), (50_000, 70_000));
}

#[test]
fn a_sweep_removes_idle_keys_of_every_algorithm_and_gives_all_back() {
    let fixture = Fixture::with_room_for(100_000);
    let rate = Rate::per_minute(10);
    let algorithms = [
        Algorithm::TOKEN_BUCKET,
        Algorithm::LEAKY_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
        Algorithm::SlidingWindowLog,
    ];
    for algorithm in algorithms {
        let limit = Limit::new(rate, algorithm).unwrap();
        for key in 0..2_000 {
            fixture.charge(&limit, &format!("key-{key}"), 3);
        }
    }
    let concurrent = Limit::concurrent(3).unwrap();
    let charges = [Charge {
        scope: &fixture.scope,
        limit: &concurrent,
        key: "key",
        cost: 1,
    }];
    fixture
        .store
        .charge(&Request::new(&charges).under(PermitId::from_u128(1)));

    fixture.store.sweep();
    assert_eq!(fixture.store.stats().keys, 12_001, "nothing is idle yet");
    fixture.clock.advance(Micros::MINUTE.times(3));
    fixture.store.sweep();
    let stats = fixture.store.stats();
    assert_eq!(
        (stats.keys, stats.permits, stats.expired, stats.evicted),
        (0, 0, 12_001, 0)
    );
}

#[test]
fn charges_alone_keep_idle_keys_to_a_fraction() {
    let fixture = Fixture::with_room_for(1_000_000);
    let limit = ten_per_minute();
    // Every key comes once and is idle six seconds later; 100 come in a millisecond.
    for key in 0..3_000_000_u64 {
        if key.is_multiple_of(100) {
            fixture.clock.advance(Micros::MILLISECOND);
        }
        fixture.charge(&limit, &key.to_string(), 1);
    }
    // 600,000 are live at any time.
    let stats = fixture.store.stats();
    assert!(stats.keys < 600_000 * 3 / 2, "{} keys", stats.keys);
    assert_eq!(stats.evicted, 0);
}

#[test]
fn a_request_with_its_own_time_sweeps_nothing() {
    let clock = ManualClock::new(NOW);
    let store = MemoryStore::builder().clock(clock).build();
    let (scope, limit) = (Scope::new("replay"), ten_per_minute());
    let charge = |key: &str, at| {
        let charges = [Charge {
            scope: &scope,
            limit: &limit,
            key,
            cost: 10,
        }];
        store.charge(&Request::new(&charges).at(Timestamp::from_seconds(at)))[0].allowed
    };
    assert!(charge("old", 1_000));
    for other in 0..5_000 {
        assert!(charge(&format!("other-{other}"), 2_000_000_000));
    }
    store.sweep();
    assert!(
        !charge("old", 1_001),
        "its minute is not over in its own time"
    );
}

#[test]
fn one_permit_covers_all_concurrency_limits_of_a_request() {
    let fixture = Fixture::with_room_for(10);
    let (few, many) = (Limit::concurrent(1).unwrap(), Limit::concurrent(5).unwrap());
    let charges = [
        Charge {
            scope: &fixture.scope,
            limit: &few,
            key: "user",
            cost: 1,
        },
        Charge {
            scope: &fixture.scope,
            limit: &many,
            key: "all",
            cost: 1,
        },
    ];
    let permit = PermitId::random();
    let request = Request::new(&charges).under(permit);
    assert!(
        fixture
            .store
            .charge(&request)
            .iter()
            .all(|outcome| outcome.allowed)
    );
    let other = Request::new(&charges).under(PermitId::random());
    let denied = fixture.store.charge(&other);
    assert_eq!(
        (denied[0].allowed, denied[1].allowed, denied[1].remaining),
        (false, true, 4)
    );

    fixture.clock.advance(Micros::SECOND.times(50));
    assert!(fixture.store.renew(permit));
    fixture.clock.advance(Micros::SECOND.times(50));
    assert_eq!(fixture.remaining(&few, "user"), 0, "renewed for a minute");
    assert!(fixture.store.release(permit));
    assert!(!fixture.store.release(permit));
    assert!(!fixture.store.renew(permit));
    assert_eq!(
        (
            fixture.remaining(&few, "user"),
            fixture.remaining(&many, "all")
        ),
        (1, 5)
    );
    assert_eq!(fixture.store.stats().permits, 0);
}

#[test]
fn states_of_other_rules_windows_and_algorithms_are_apart() {
    let fixture = Fixture::with_room_for(10);
    let other = Scope::new("other");
    let limit = ten_per_minute();
    fixture.charge(&limit, "key", 10);
    let window: Limit = "10/hour".parse().unwrap();
    let algorithm = Limit::new(Rate::per_minute(10), Algorithm::FIXED_WINDOW).unwrap();
    assert_eq!(fixture.remaining(&window, "key"), 10);
    assert_eq!(fixture.remaining(&algorithm, "key"), 10);
    assert_eq!(fixture.remaining(&limit, "key "), 10);
    let charges = [Charge {
        scope: &other,
        limit: &limit,
        key: "key",
        cost: 0,
    }];
    assert_eq!(fixture.store.peek(&Request::new(&charges))[0].remaining, 10);
}

#[test]
fn a_lowered_limit_keeps_its_debt_through_a_sweep() {
    let fixture = Fixture::with_room_for(10);
    let fast: Limit = "100/minute burst 100".parse().unwrap();
    let slow: Limit = "1/minute burst 100".parse().unwrap();
    fixture.charge(&fast, "key", 100);
    assert!(!fixture.charge(&slow, "key", 100).allowed);
    fixture.clock.advance(Micros::SECOND.times(62));
    fixture.store.sweep();
    assert!(
        !fixture.charge(&slow, "key", 100).allowed,
        "owed for 100 minutes"
    );
}

#[test]
fn a_renewal_that_comes_too_late_leaves_nothing_behind() {
    let fixture = Fixture::with_room_for(10);
    let short = Algorithm::Concurrency {
        lease_ttl: Micros::SECOND,
    };
    let rate = Rate::concurrent(5);
    let (short, long) = (
        Limit::new(rate, short).unwrap(),
        Limit::concurrent(5).unwrap(),
    );
    let charges = [
        Charge {
            scope: &fixture.scope,
            limit: &short,
            key: "short",
            cost: 1,
        },
        Charge {
            scope: &fixture.scope,
            limit: &long,
            key: "long",
            cost: 1,
        },
    ];
    let permit = PermitId::random();
    fixture.store.charge(&Request::new(&charges).under(permit));
    fixture.clock.advance(Micros::SECOND.times(2));
    assert!(
        !fixture.store.renew(permit),
        "one of its two places is lost"
    );
    assert_eq!(fixture.store.stats().permits, 1, "the other is still held");
    fixture.clock.advance(Micros::SECOND.times(90));
    assert!(!fixture.store.renew(permit));
    assert_eq!(fixture.store.stats().permits, 0);
}

#[test]
fn a_key_that_is_used_all_the_time_is_not_swept_in_between() {
    let fixture = Fixture::with_room_for(10_000);
    let quick: Limit = "1000000/second".parse().unwrap();
    for turn in 0..50_000_u64 {
        fixture.clock.advance(Micros::new(10));
        fixture.charge(&quick, &format!("key-{}", turn % 1_000), 1);
    }
    assert_eq!(fixture.store.stats().expired, 0);
}

/// Every algorithm at the end of time: still never over the limit.
#[test]
fn the_last_microsecond_is_like_any_other() {
    let fixture = Fixture::with_room_for(100);
    let algorithms = [
        Algorithm::TOKEN_BUCKET,
        Algorithm::LEAKY_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: tidegate_core::Anchor::FirstRequest,
        },
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
        Algorithm::SlidingWindowLog,
        Algorithm::CONCURRENCY,
    ];
    for algorithm in algorithms {
        let rate = match algorithm {
            Algorithm::Concurrency { .. } => Rate::concurrent(5),
            _ => Rate::per_minute(5),
        };
        let limit = Limit::new(rate, algorithm).unwrap();
        let charges = [Charge {
            scope: &fixture.scope,
            limit: &limit,
            key: "key",
            cost: 5,
        }];
        let at_the_end = |permit| {
            let request = Request::new(&charges).at(Timestamp::from_micros(u64::MAX));
            fixture
                .store
                .charge(&request.under(PermitId::from_u128(permit)))[0]
                .allowed
        };
        let allowed = (0..10).filter(|turn| at_the_end(*turn)).count();
        assert_eq!(allowed, 1, "{}", algorithm.name());
    }
}

#[test]
fn what_takes_nothing_makes_no_key() {
    let fixture = Fixture::with_room_for(1);
    let rate = Rate::per_minute(10);
    let kept = ten_per_minute();
    fixture.charge(&kept, "kept", 1);
    let algorithms = [
        Algorithm::TOKEN_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
        Algorithm::SlidingWindowLog,
    ];
    for algorithm in algorithms {
        let limit = Limit::new(rate, algorithm).unwrap();
        let asking = |cost| Charge {
            scope: &fixture.scope,
            limit: &limit,
            key: "gone",
            cost,
        };
        let (one, none) = ([asking(1)], [asking(0)]);
        let allowed = fixture.store.peek(&Request::new(&one));
        fixture.store.give_back(&Request::new(&one), &allowed);
        fixture.store.settle(&Request::new(&none));
        fixture.store.charge(&Request::new(&none));
        fixture.store.charge(&Request::new(&[asking(11)]));
    }
    let stats = fixture.store.stats();
    assert_eq!((stats.keys, stats.evicted), (1, 0));
    assert_eq!(fixture.remaining(&kept, "kept"), 9);
}

#[test]
fn asking_after_the_clock_was_set_back_lets_no_key_go_before_its_time() {
    let concurrency = Algorithm::Concurrency {
        lease_ttl: Micros::MINUTE,
    };
    let holders = Rate::concurrent(10);
    let limits = [
        Limit::new(Rate::per_minute(10), Algorithm::SlidingWindowLog),
        Limit::new(Rate::per_minute(10), Algorithm::SLIDING_WINDOW_SLOTS),
        Limit::new(holders, concurrency),
        Limit::new(Rate::per_minute(10), Algorithm::SlidingWindowCounter),
    ];
    for limit in limits.map(Result::unwrap) {
        let fixture = Fixture::with_room_for(100);
        let charge = |cost| Charge {
            scope: &fixture.scope,
            limit: &limit,
            key: "key",
            cost,
        };
        let permit = PermitId::from_u128(1);
        fixture
            .store
            .charge(&Request::new(&[charge(10)]).under(permit));
        // Further than the limit remembers, and then forward to where it counts as its own time again.
        fixture.clock.set(NOW - Micros::from_seconds(90));
        fixture.charge(&limit, "key", 0);
        fixture.clock.set(NOW - Micros::from_seconds(20));
        fixture.store.sweep();
        assert_eq!(fixture.store.stats().keys, 1, "{limit:?}");
    }
}

/// Charges two keys with one request.
fn charge_two(fixture: &Fixture, limit: &Limit, keys: [&str; 2]) -> [Outcome; 2] {
    let charges = keys.map(|key| Charge {
        scope: &fixture.scope,
        limit,
        key,
        cost: 1,
    });
    let outcomes = fixture.store.charge(&Request::new(&charges));
    [outcomes[0], outcomes[1]]
}

#[test]
fn requests_of_known_keys_remove_idle_ones_in_passing() {
    let many: Limit = "1000000/minute".parse().unwrap();
    let uses: [fn(&Fixture, &Limit); 2] = [
        |fixture, limit| assert!(fixture.charge(limit, "one", 1).allowed),
        |fixture, limit| assert!(charge_two(fixture, limit, ["one", "other"])[0].allowed),
    ];
    for use_known in uses {
        let fixture = Fixture::with_room_for(1_000);
        use_known(&fixture, &many);
        for key in 0..900 {
            fixture.charge(&ten_per_minute(), &key.to_string(), 1);
        }
        fixture.clock.advance(Micros::SECOND.times(10));
        assert!(fixture.store.stats().keys > 900);
        for _ in 0..30_000 {
            use_known(&fixture, &many);
        }
        let stats = fixture.store.stats();
        assert!(stats.keys <= 2, "{} keys", stats.keys);
        assert_eq!(stats.expired, 900);
    }
}

/// Threads that read the clock at the same time get different times, by less than ten milliseconds. A clock
/// that is further behind was set back.
#[test]
fn a_clock_that_is_a_little_behind_is_that_of_another_thread() {
    let limit = ten_per_minute();
    for (behind, decided_behind) in [
        (0, 0),
        (1, 0),
        (9_999, 0),
        (10_000, 10_000),
        (1 << 40, 1 << 40),
    ] {
        let before = |micros| Timestamp::from_micros(NOW.as_micros() - micros);
        let fixture = Fixture::with_room_for(10);
        fixture.charge(&limit, "first", 1);
        fixture.clock.set(before(behind));
        let at = fixture.charge(&limit, "second", 1).at;
        assert_eq!(at, before(decided_behind), "one limit, {behind}");

        let fixture = Fixture::with_room_for(10);
        charge_two(&fixture, &limit, ["first", "second"]);
        fixture.clock.set(before(behind));
        let outcomes = charge_two(&fixture, &limit, ["third", "fourth"]);
        let at = outcomes.map(|outcome| outcome.at);
        assert_eq!(at, [before(decided_behind); 2], "two limits, {behind}");
    }
}

/// So that one that is used all the time, and idle in between, does not come and go.
#[test]
fn an_idle_key_is_removed_one_second_after_it_became_idle() {
    let fixture = Fixture::with_room_for(10);
    let limit = Limit::new(Rate::per_minute(10), Algorithm::SlidingWindowLog).unwrap();
    fixture.charge(&limit, "key", 1);
    let removed_at = Micros::MINUTE.get() + Micros::SECOND.get();
    for (after, keys) in [(removed_at - 1, 1), (removed_at, 0)] {
        fixture
            .clock
            .set(Timestamp::from_micros(NOW.as_micros() + after));
        fixture.store.sweep();
        assert_eq!(fixture.store.stats().keys, keys, "after {after}");
    }
}

#[test]
fn a_key_that_was_denied_and_is_allowed_again_goes_as_any_other() {
    for algorithm in [Algorithm::TOKEN_BUCKET, Algorithm::SlidingWindowLog] {
        let fixture = Fixture::with_room_for(2);
        let limit = Limit::new(Rate::per_minute(2), algorithm).unwrap();
        let longer: Limit = "10/hour".parse().unwrap();
        fixture.charge(&limit, "denied before", 2);
        assert!(!fixture.charge(&limit, "denied before", 1).allowed);
        fixture.clock.advance(Micros::MINUTE);
        assert!(fixture.charge(&limit, "denied before", 1).allowed);
        fixture.charge(&longer, "live", 10);

        fixture.charge(&longer, "new", 1);
        assert_eq!(fixture.remaining(&limit, "denied before"), 2, "it went");
        assert_eq!(fixture.remaining(&longer, "live"), 0);
    }
}

#[test]
fn a_sweep_in_parts_removes_a_part_at_a_time() {
    let fixture = Fixture::with_room_for(100_000);
    for key in 0..2_000 {
        fixture.charge(&ten_per_minute(), &key.to_string(), 1);
    }
    fixture.clock.advance(Micros::MINUTE);
    let parts = NonZeroUsize::new(4).unwrap();
    for part in 1..=4 {
        fixture.store.sweep_part(parts);
        let left = 2_000 * (4 - part) / 4;
        let keys = fixture.store.stats().keys;
        assert!(keys.abs_diff(left) < 150, "{keys} keys after {part} parts");
    }
    assert_eq!(fixture.store.stats().keys, 0);
}

#[test]
fn a_key_of_which_all_was_given_back_is_idle() {
    for algorithm in [Algorithm::TOKEN_BUCKET, Algorithm::SlidingWindowLog] {
        let fixture = Fixture::with_room_for(10);
        let limit = Limit::new(Rate::per_minute(10), algorithm).unwrap();
        let charges = [Charge {
            scope: &fixture.scope,
            limit: &limit,
            key: "key",
            cost: 10,
        }];
        let request = Request::new(&charges);
        let outcomes = fixture.store.charge(&request);
        fixture.store.give_back(&request, &outcomes);
        fixture.clock.advance(Micros::SECOND.times(2));
        fixture.store.sweep();
        assert_eq!(fixture.store.stats().keys, 0, "{limit:?}");
    }
}

#[test]
fn after_the_clock_was_set_back_a_key_is_idle_by_the_new_time() {
    for (used, is_allowed) in [(5, true), (10, false)] {
        let fixture = Fixture::with_room_for(10);
        let limit = Limit::new(Rate::per_minute(10), Algorithm::SlidingWindowLog).unwrap();
        fixture.charge(&limit, "key", used);
        fixture.clock.set(NOW - Micros::HOUR);
        assert_eq!(fixture.charge(&limit, "key", 1).allowed, is_allowed);
        fixture.clock.advance(Micros::MINUTE + Micros::SECOND);
        fixture.store.sweep();
        assert_eq!(fixture.store.stats().keys, 0, "{used} used before");
    }
}

/// A portable bucket keeps fractions of a request, whatever its window is next.
#[test]
fn a_bucket_whose_window_changes_keeps_what_was_used_to_the_fraction() {
    let fixture = Fixture::with_room_for(10);
    let bucket = |window| Limit::portable_bucket(1, window, 10).unwrap();
    let (by_minute, by_hour) = (bucket(Micros::MINUTE), bucket(Micros::HOUR));
    fixture.charge(&by_minute, "key", 5);
    // Half of one flows back, so that five and a half are used.
    fixture.clock.advance(Micros::SECOND.times(30));
    let outcome = fixture.charge(&by_minute, "key", 1);
    assert_eq!(outcome.reset_at, outcome.at + Micros::SECOND.times(330));
    let outcome = fixture.charge(&by_hour, "key", 0);
    assert_eq!(outcome.reset_at, outcome.at + Micros::MINUTE.times(330));
}
