//! The limiter as a program uses it.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{
    AcquireError, Algorithm, Clock, Limit, Limiter, ManualClock, MemoryStore, Micros, Timestamp,
    TokioClock, Turn,
};

const NOW: Timestamp = Timestamp::from_seconds(1_794_700_800);

#[test]
fn several_limits_must_all_agree() {
    let clock = ManualClock::new(NOW);
    let limiter = Limiter::builder("5/minute; 2/second")
        .clock(clock.clone())
        .build()
        .unwrap();
    assert!(limiter.check("key").is_allowed());
    let second = limiter.check("key");
    assert_eq!((second.remaining(), second.decided_by()), (0, 1));
    let denied = limiter.check("key");
    assert!(denied.is_denied());
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(500)));
    assert_eq!(
        denied.outcomes()[0].remaining,
        3,
        "the other limit was not charged"
    );

    clock.advance(Micros::SECOND);
    assert_eq!(limiter.check_cost("key", 2).remaining(), 0);
    clock.advance(Micros::SECOND);
    let denied = limiter.check_cost("key", 2);
    assert_eq!(
        (denied.is_denied(), denied.decided_by(), denied.limit()),
        (true, 0, 5)
    );
    assert_eq!(
        limiter.check_cost("key", 6).retry_after(),
        None,
        "more than it can ever grant"
    );
}

#[test]
fn a_quota_of_a_day_grants_that_much_a_day() {
    let clock = ManualClock::new(NOW);
    let limiter = Limiter::builder("10/day; 5/minute")
        .clock(clock.clone())
        .build()
        .unwrap();
    let names = limiter
        .limits()
        .iter()
        .map(|limit| limit.algorithm().name());
    assert_eq!(names.collect::<Vec<_>>(), ["fixed_window", "token_bucket"]);
    for day in 0..3 {
        let allowed = (0..24).filter(|_| {
            let is_allowed = limiter.check("key").is_allowed();
            clock.advance(Micros::HOUR);
            is_allowed
        });
        assert_eq!(allowed.count(), 10, "day {day}");
    }
    let bucket = Limiter::new("10/day burst 10").unwrap();
    assert_eq!(bucket.limits()[0].algorithm(), Algorithm::TOKEN_BUCKET);
}

#[test]
fn peek_settle_and_reset() {
    let limiter = Limiter::builder("10/minute")
        .clock(ManualClock::new(NOW))
        .build()
        .unwrap();
    assert_eq!(limiter.peek("key").remaining(), 10);
    assert_eq!(limiter.settle("key", 4).remaining(), 6);
    assert!(limiter.peek_cost("key", 7).is_denied());
    assert_eq!(limiter.settle("key", 100).remaining(), 0);
    limiter.reset("key");
    assert_eq!(limiter.peek("key").remaining(), 10);
}

#[test]
fn a_concurrency_limit_is_held_until_it_is_released() {
    let limiter = Limiter::builder("2")
        .algorithm(Algorithm::CONCURRENCY)
        .build()
        .unwrap();
    let first = limiter.check("key");
    let second = limiter.check("key");
    assert!(first.is_allowed() && second.is_allowed());
    let third = limiter.check("key");
    assert_eq!((third.is_denied(), third.permit()), (true, None));
    assert!(limiter.release(first.permit().unwrap()));
    assert!(limiter.check("key").is_allowed());
}

#[test]
fn a_bad_limit_is_refused_with_advice() {
    let error = Limiter::new("100/fortnight").unwrap_err().to_string();
    assert!(
        error.contains("`fortnight` is not a unit; use `ms`, `s`"),
        "{error}"
    );
}

/// A limiter that goes by tokio's paused time.
fn paused(limits: &str) -> tidegate::LimiterBuilder {
    Limiter::builder(limits).clock(TokioClock::start())
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_served_one_by_one_in_order() {
    let limiter = paused("10/second burst 1").build().unwrap();
    let clock = TokioClock::start();
    let started = clock.now();
    let waits = (0..5).map(|number| {
        let limiter = limiter.clone();
        async move {
            drop(limiter.acquire("api").await.unwrap());
            (number, clock.now().since(started))
        }
    });
    let mut done = Vec::new();
    let mut tasks: Vec<_> = waits.map(|wait| tokio::spawn(wait)).collect();
    for task in &mut tasks {
        done.push(task.await.unwrap());
    }
    for (number, (who, waited)) in done.iter().enumerate() {
        let wanted = u64::try_from(number).unwrap() * 100_000;
        assert_eq!(*who, number);
        // tokio's timers tick in milliseconds.
        assert!(
            (wanted..=wanted + 2_000).contains(&waited.get()),
            "{number} waited {waited}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_gives_back_what_it_reserved() {
    let limiter = paused("1/second burst 1").build().unwrap();
    drop(limiter.acquire("api").await.unwrap());
    for _ in 0..20 {
        let impatient = tokio::time::timeout(Duration::from_millis(1), limiter.acquire("api"));
        assert!(impatient.await.is_err());
    }
    // Twenty reservations would have pushed this one twenty seconds away.
    let retry_after = limiter.peek("api").retry_after().unwrap();
    assert!(retry_after <= Duration::from_secs(1), "{retry_after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_would_be_too_long_fails_at_once_and_takes_nothing() {
    for algorithm in [
        Algorithm::TOKEN_BUCKET,
        Algorithm::LEAKY_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindowLog,
    ] {
        let limiter = paused("1/hour")
            .algorithm(algorithm)
            .max_wait(Duration::from_secs(2))
            .build()
            .unwrap();
        drop(limiter.acquire("api").await.unwrap());
        let clock = TokioClock::start();
        let started = clock.now();
        let error = limiter.acquire("api").await.unwrap_err();
        assert!(
            matches!(error, AcquireError::TooLong { .. }),
            "{}",
            algorithm.name()
        );
        assert_eq!(clock.now(), started);
        let decision = error.decision().unwrap();
        assert!(decision.retry_after() > Some(Duration::from_secs(2)));
        let never = limiter.acquire_cost("api", 2).await.unwrap_err();
        assert_eq!(
            never.to_string(),
            "the cost is above the limit of 1, so waiting cannot help"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn windows_are_waited_for_by_asking_again() {
    let log = paused("1/second")
        .algorithm(Algorithm::SlidingWindowLog)
        .build()
        .unwrap();
    for _ in 0..3 {
        drop(log.acquire("api").await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_freed_goes_to_one_who_waits() {
    let places = paused("1")
        .algorithm(Algorithm::CONCURRENCY)
        .build()
        .unwrap();
    let clock = TokioClock::start();
    let started = clock.now();
    let permit = places.acquire("api").await.unwrap();
    assert!(permit.renew());
    let waiting = tokio::spawn({
        let places = places.clone();
        async move { places.acquire("api").await.map(drop) }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(permit);
    waiting.await.unwrap().unwrap();
    assert!(
        clock.now().since(started) <= Micros::from_millis(1_002),
        "at once, not after a minute"
    );
    assert!(
        places.check("api").is_allowed(),
        "both permits were given back"
    );

    let error = places.acquire("api").await.unwrap_err();
    assert!(
        matches!(error, AcquireError::TooLong { .. }),
        "it was not released within ten seconds"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shaped_leaky_bucket_is_waited_for() {
    let limiter = paused("10/second burst 3")
        .algorithm(Algorithm::LEAKY_BUCKET)
        .build()
        .unwrap();
    let clock = TokioClock::start();
    let started = clock.now();
    for _ in 0..4 {
        drop(limiter.acquire("api").await.unwrap());
    }
    let waited = clock.now().since(started);
    assert!(waited >= Micros::from_millis(300), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn giving_up_and_trying_again_gets_through_in_the_end() {
    for algorithm in [Algorithm::TOKEN_BUCKET, Algorithm::LEAKY_BUCKET] {
        let limiter = paused("1/second burst 1")
            .algorithm(algorithm)
            .build()
            .unwrap();
        let mut got_through = 0;
        for _ in 0..120 {
            let half = tokio::time::timeout(Duration::from_millis(500), limiter.acquire("api"));
            got_through += u32::from(half.await.is_ok());
        }
        assert!(
            (59..=61).contains(&got_through),
            "{got_through} in a minute"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_dropped_wakes_one_who_waits() {
    let limits = vec![
        "1/second burst 1".parse().unwrap(),
        tidegate::Limit::concurrent(1).unwrap(),
    ];
    let limiter = Limiter::builder_for(limits)
        .clock(TokioClock::start())
        .build()
        .unwrap();
    drop(limiter.acquire("api").await.unwrap());
    // The first has the place, and waits for its turn; the second waits for the place.
    let first = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("api").await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let second = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("api").await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    first.abort();
    let woken = tokio::time::timeout(Duration::from_secs(2), second).await;
    assert!(woken.is_ok_and(|task| task.unwrap().is_ok()));
}

#[tokio::test]
async fn what_is_there_is_given_without_waiting() {
    let limiter = Limiter::builder("1000000/hour")
        .max_wait(Duration::ZERO)
        .build()
        .unwrap();
    for _ in 0..500 {
        assert!(limiter.acquire("api").await.is_ok());
    }
    let places = Limiter::builder("1000")
        .algorithm(Algorithm::CONCURRENCY)
        .max_wait(Duration::ZERO);
    let places = places.build().unwrap();
    let mut permits = Vec::new();
    for _ in 0..1_000 {
        permits.push(places.acquire("api").await.unwrap());
    }
    assert!(places.acquire("api").await.is_err());
}

#[test]
fn a_turn_is_reserved_without_a_runtime_and_given_back_if_it_is_not_taken() {
    let clock = ManualClock::new(Timestamp::from_seconds(1_000));
    let limiter = Limiter::builder("1/second").clock(clock.clone());
    let limiter = limiter.build().unwrap();
    assert!(limiter.check("api").is_allowed());
    let reserve = || match limiter.reserve("api", 1, Duration::from_secs(5)) {
        Ok(Turn::Reserved(turn)) => turn,
        other => panic!("a token bucket reserves: {other:?}"),
    };
    for _ in 0..3 {
        let wait = reserve().wait();
        assert_eq!(wait, Duration::from_secs(1), "given back each time");
    }
    let turn = reserve();
    assert!(turn.take().decision().is_allowed());
    assert_eq!(
        limiter.peek("api").retry_after(),
        Some(Duration::from_secs(2))
    );
    let refused = limiter.reserve("api", 1, Duration::from_millis(999));
    let refused = refused.unwrap_err();
    assert!(matches!(refused, AcquireError::TooLong { .. }), "{refused}");
    let never = limiter.reserve("api", 2, Duration::from_secs(5));
    assert!(matches!(never, Err(AcquireError::Never(_))));
    // No longer than the builder's `max_wait`, which is 10 seconds.
    limiter.settle("busy", 1);
    for _ in 0..10 {
        let turn = limiter.reserve("busy", 1, Duration::from_secs(90)).unwrap();
        if let Turn::Reserved(turn) = turn {
            drop(turn.take());
        }
    }
    assert!(limiter.reserve("busy", 1, Duration::MAX).is_err());
}

#[test]
fn a_permit_can_be_handed_over() {
    let limiter = Limiter::builder_for(vec![Limit::concurrent(1).unwrap()]);
    let limiter = limiter.build().unwrap();
    let Turn::Reserved(turn) = limiter.reserve("api", 1, Duration::ZERO).unwrap() else {
        panic!("one is free");
    };
    let decision = turn.take().into_decision();
    let Turn::AskAgain(wait) = limiter.reserve("api", 1, Duration::from_secs(3)).unwrap() else {
        panic!("it is held");
    };
    assert_eq!(wait, Duration::from_secs(3), "or when it is released");
    assert!(limiter.release(decision.permit().unwrap()));
    assert!(limiter.check("api").is_allowed());
}

#[test]
fn limiters_in_one_store_share_counters_by_name() {
    let store = Arc::new(MemoryStore::new());
    let limiter = |name| {
        let builder = Limiter::builder("2/minute");
        builder.build_in(name, Arc::clone(&store)).unwrap()
    };
    assert_eq!(limiter("one").check("u").remaining(), 1);
    assert_eq!(limiter("one").check("u").remaining(), 0);
    assert_eq!(limiter("other").check("u").remaining(), 1);
}
