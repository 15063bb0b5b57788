//! The arrivals of the accuracy suite on the memory store: every decision is that of the reference, none is over the
//! promise, and `retry_after` is exact. `./scripts/accuracy` compares all stores and other limiters on them.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test may")]

use tidegate_core::{Limit, Rate};
use tidegate_testkit::accuracy::{
    Accuracy, ArrivalPattern, ArrivalPlan, DecidedArrival, Judge, MemoryRun, all_algorithms, title,
    worst_in_window,
};

const COUNT: u64 = 50;

/// The figures of a run, and how many denials were tried again.
fn run(limit: &Limit, pattern: ArrivalPattern, seed: u64) -> (Accuracy, u64) {
    let plan = ArrivalPlan {
        pattern,
        count: COUNT,
        window: limit.window().unwrap().longest(),
        windows: 8,
        seed,
    };
    let (store, mut judge) = (MemoryRun::new(limit), Judge::new(limit).unwrap());
    let mut retries = 0;
    for arrival in plan.draw() {
        let outcome = store.charge(arrival).expect("a clock changes nothing");
        judge.take(DecidedArrival::new(arrival.at, arrival.key, &outcome));
        for retried in store.retries(arrival, &outcome) {
            assert_eq!(retried, (true, false), "{arrival:?}, {outcome:?}");
            retries += 1;
        }
    }
    (judge.finish(), retries)
}

#[test]
fn every_algorithm_decides_as_its_reference_and_never_over_its_promise() {
    for algorithm in all_algorithms() {
        let limit = Limit::new(Rate::per_second(COUNT), algorithm).unwrap();
        for pattern in ArrivalPattern::ALL {
            let (figures, retries) = run(&limit, pattern, 1);
            let name = format!("{}, {}", title(algorithm), pattern.name());
            assert_eq!((figures.over_promise, figures.different), (0, 0), "{name}");
            assert!(figures.most_in_window <= worst_in_window(&limit), "{name}");
            assert!(retries >= figures.arrivals - figures.admitted, "{name}");
            let is_often_denied = matches!(
                pattern,
                ArrivalPattern::OnOff | ArrivalPattern::WindowEdge | ArrivalPattern::ZipfKeys
            );
            assert!(retries > 0 || !is_often_denied, "{name}");
            assert_eq!(run(&limit, pattern, 1), (figures, retries), "{name}");
        }
    }
}

#[test]
fn only_what_promises_it_stays_within_the_limit_in_any_window() {
    for algorithm in all_algorithms() {
        let limit = Limit::new(Rate::per_second(COUNT), algorithm).unwrap();
        let (figures, _) = run(&limit, ArrivalPattern::WindowEdge, 1);
        let is_over = figures.most_in_window > COUNT + 1;
        let may_be = worst_in_window(&limit) > COUNT + 1;
        assert_eq!(is_over, may_be, "{}: {figures:?}", title(algorithm));
    }
}
