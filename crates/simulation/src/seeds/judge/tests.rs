//! The checks themselves, on admissions by hand.

use tidegate_core::{Algorithm, Limit, Micros, Rate};

/// A name, admissions from one time to another, and the excess that is found.
type JudgedRow<'a> = (&'a str, &'a [(u64, u64)], Option<u64>);

use super::*;

fn limit(count: u64, burst: Option<u64>, algorithm: Algorithm) -> Limit {
    let mut rate = Rate::new(count, Micros::SECOND);
    rate.burst = burst;
    Limit::new(rate, algorithm).unwrap()
}

/// Admissions of cost 1, between two times in milliseconds each.
fn excess(limit: &Limit, times: &[(u64, u64)], extras: &[ExtraQuota]) -> Option<u64> {
    let admissions: Vec<Admission> = times
        .iter()
        .map(|(from, to)| Admission {
            from: from * 1_000,
            to: to * 1_000,
            cost: 1,
        })
        .collect();
    let limits = [(0, u64::MAX, limit.clone())];
    let promise = Promise {
        limits: &limits,
        extras,
    };
    promise.check(&admissions).map(|excess| excess.units)
}

const EXTRA: ExtraQuota = ExtraQuota {
    units: 1,
    from: 1_000_000,
    until: 1_500_000,
};

#[test]
fn windows_are_checked_by_hand() {
    let two = limit(2, None, Algorithm::FIXED_WINDOW);
    #[rustfmt::skip]
    let table: [JudgedRow<'_>; 5] = [
        ("two in each window",         &[(0, 1), (998, 999), (1_000, 1_001), (1_999, 1_999)], None),
        ("three in one",               &[(0, 1), (998, 999), (500, 501)],                      Some(1)),
        ("one may count in the next",  &[(0, 1), (500, 501), (998, 1_002)],                    None),
        ("and does not fit there",     &[(0, 1), (5, 6), (998, 1_002), (1_003, 1_003), (1_004, 1_004)], Some(1)),
        ("four in one",                &[(0, 1), (2, 3), (4, 5), (6, 7)],                      Some(2)),
    ];
    for (name, times, wanted) in table {
        assert_eq!(excess(&two, times, &[]), wanted, "{name}");
    }
    let three = [(1_000, 1_001), (1_200, 1_201), (1_300, 1_301)];
    assert_eq!(excess(&two, &three, &[EXTRA]), None, "state was lost");
    let four = [
        (1_000, 1_001),
        (1_200, 1_201),
        (1_300, 1_301),
        (1_400, 1_401),
    ];
    assert_eq!(excess(&two, &four, &[EXTRA]), Some(1), "once");
}

#[test]
fn buckets_are_checked_by_hand() {
    let bucket = limit(10, Some(2), Algorithm::TOKEN_BUCKET);
    #[rustfmt::skip]
    let table: [JudgedRow<'_>; 6] = [
        ("the burst",                      &[(0, 0), (0, 0)],                       None),
        ("one more",                       &[(0, 0), (0, 0), (0, 0)],               Some(1)),
        ("one more in time",               &[(0, 0), (0, 0), (100, 100)],           None),
        ("and a millisecond too soon",     &[(0, 0), (0, 0), (99, 99)],             Some(1)),
        ("one that counts late enough",    &[(0, 0), (0, 0), (0, 100)],             None),
        ("idling never exceeds the burst", &[(0, 0), (900, 900), (900, 900), (900, 900)], Some(1)),
    ];
    for (name, times, wanted) in table {
        assert_eq!(excess(&bucket, times, &[]), wanted, "{name}");
    }
    let three = [(1_000, 1_000), (1_000, 1_000), (1_000, 1_000)];
    assert_eq!(excess(&bucket, &three, &[EXTRA]), None, "state was lost");
    let before = [(999, 999), (999, 999), (999, 999)];
    assert_eq!(
        excess(&bucket, &before, &[EXTRA]),
        Some(1),
        "only afterwards"
    );
}

#[test]
fn sliding_windows_are_checked_by_hand() {
    let log = limit(2, None, Algorithm::SlidingWindowLog);
    assert_eq!(
        excess(&log, &[(500, 500), (900, 900), (1_500, 1_500)], &[]),
        None
    );
    assert_eq!(
        excess(&log, &[(500, 500), (900, 900), (1_499, 1_499)], &[]),
        Some(1)
    );
    assert_eq!(
        excess(&log, &[(500, 500), (900, 900), (1_499, 1_500)], &[]),
        None
    );
    let slots = Algorithm::SlidingWindowSlots {
        slots: Some(4),
        strict: false,
    };
    let slots = limit(2, None, slots);
    assert_eq!(
        excess(&slots, &[(249, 249), (300, 300), (1_000, 1_000)], &[]),
        None
    );
    assert_eq!(
        excess(&slots, &[(249, 249), (300, 300), (999, 999)], &[]),
        Some(1)
    );
}
