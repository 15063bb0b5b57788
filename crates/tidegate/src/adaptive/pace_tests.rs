//! The estimate of a rate by hand, one stretch at a time. With an upstream and a bucket it is simulated in
//! `tests/gate/adaptive_rate.rs`.

use tidegate_core::{Micros, Timestamp};

use super::pace::Pace;
use super::{Adaptive, Ended};

const NOW: Timestamp = Timestamp::from_seconds(1_794_700_800);
const TENTH: Micros = Micros::from_millis(100);

fn pace(target: Option<Micros>, start: u64) -> Pace {
    let settings = Adaptive {
        min: 10,
        max: 1_000,
        target,
    };
    Pace::new(settings, Micros::SECOND, start)
}

fn to_100_ms(start: u64) -> Pace {
    pace(Some(TENTH), start)
}

fn millis(millis: u64) -> Ended {
    Ended::Answered(Micros::from_millis(millis))
}

/// Lets so many requests end in the same way within a tenth of a second.
fn stretch(pace: &mut Pace, from: Timestamp, ended: &[Ended], is_used: bool) -> u64 {
    assert!(!pace.add(&ended[..1], from));
    assert!(pace.add(&ended[1..], from + TENTH));
    pace.close(is_used);
    pace.limit()
}

#[test]
fn one_stretch_by_hand() {
    #[rustfmt::skip]
    let table = [
        // name                                       ended                 is used  rate, from 200
        ("at the target: a little more",              vec![millis(100); 20], true,   204),
        ("half of it: an eighth more",                vec![millis(50); 20],  true,   225),
        ("no time at all: a quarter more",            vec![millis(0); 20],   true,   250),
        ("no time at all, and nothing held back",     vec![millis(0); 20],   false,  200),
        ("three times the target: half",              vec![millis(300); 20], true,   100),
        ("the same, and nothing held back",           vec![millis(300); 20], false,  100),
        ("far above: a fifth",                        vec![millis(5_000); 20], true, 40),
        ("the longest time",                          vec![Ended::Answered(Micros::MAX); 20], true, 40),
        ("half is done, so the queue grows",          vec![millis(80); 10],  true,   133),
        ("dropped: a tenth less",                     vec![Ended::Dropped; 20], true, 180),
        ("one of twenty is dropped",                  [vec![millis(10); 19], vec![Ended::Dropped]].concat(), true, 180),
        ("one of twenty-one is dropped",              [vec![millis(100); 20], vec![Ended::Dropped]].concat(), true, 204),
    ];
    for (name, ended, is_used, rate) in table {
        let mut pace = to_100_ms(200);
        assert_eq!(stretch(&mut pace, NOW, &ended, is_used), rate, "{name}");
    }
}

#[test]
fn the_bounds_hold() {
    let mut lowest = to_100_ms(10);
    assert_eq!(stretch(&mut lowest, NOW, &[Ended::Dropped; 10], true), 10);
    let mut highest = to_100_ms(1_000);
    assert_eq!(stretch(&mut highest, NOW, &[millis(0); 200], true), 1_000);
}

#[test]
fn after_the_queue_is_drained_the_rate_is_what_the_upstream_was_seen_to_do() {
    let mut pace = to_100_ms(200);
    let mut now = NOW;
    let mut next = |ended: &[Ended]| {
        let rate = stretch(&mut pace, now, ended, true);
        now = now + TENTH;
        rate
    };
    // 100 a second are done: a fifth of that while the queue is long.
    let draining: Vec<u64> = (0..8).map(|_| next(&[millis(2_000); 10])).collect();
    assert!(
        draining.iter().all(|rate| (20..=30).contains(rate)),
        "{draining:?}"
    );
    let after = next(&[millis(60); 10]);
    assert!((100..=125).contains(&after), "{after}");
}

#[test]
fn what_is_reported_only_in_part_is_learned() {
    let mut pace = to_100_ms(200);
    let mut now = NOW;
    // Half of 200 in a second is reported; without a queue that is no reason to slow down.
    for _ in 0..40 {
        stretch(&mut pace, now, &[millis(5); 10], true);
        now = now + TENTH;
    }
    let rate = pace.limit();
    assert!(rate >= 200, "{rate}");
}

#[test]
fn times_out_of_order_or_far_apart_do_no_harm() {
    let mut pace = to_100_ms(200);
    // A long silence: what came before is forgotten.
    assert!(!pace.add(&[millis(5_000); 9], NOW));
    let later = NOW + Micros::from_seconds(60);
    assert_eq!(stretch(&mut pace, later, &[millis(100); 20], true), 204);
    // A little earlier counts as now.
    assert!(!pace.add(&[millis(100); 9], later));
    // A clock that was set back is the clock.
    let earlier = NOW - Micros::HOUR;
    let rate = stretch(&mut pace, earlier, &[millis(5_000); 20], true);
    assert!(rate < 60, "{rate}");
}

#[test]
fn a_few_requests_are_enough_where_there_are_no_more() {
    let mut pace = to_100_ms(20);
    assert!(!pace.add(&[millis(5)], NOW));
    assert!(!pace.add(&[millis(5)], NOW + Micros::from_millis(100)));
    assert!(!pace.add(&[millis(5)], NOW + Micros::from_millis(200)));
    assert!(pace.add(&[millis(5)], NOW + Micros::from_millis(300)));
    pace.close(true);
    assert_eq!(pace.latency(), Some(Micros::from_millis(5)));
}

#[test]
fn without_a_target_a_probe_lasts_until_latency_no_longer_falls() {
    let mut pace = pace(None, 200);
    let mut now = NOW;
    let mut next = |pace: &mut Pace, latency: u64| {
        stretch(pace, now, &[millis(latency); 20], true);
        now = now + TENTH;
        pace.limit()
    };
    // The first twenty are no measure: there may have been a queue from the beginning.
    let watching: Vec<u64> = (0..19).map(|_| next(&mut pace, 300)).collect();
    assert!(watching.iter().all(|rate| *rate >= 200), "{watching:?}");
    let lowered = next(&mut pace, 300);
    assert!(lowered * 3 < watching[18], "a quarter: {lowered}");
    // Those that began before the probe, then a queue that drains.
    for latency in [300, 300, 250, 200, 150, 100, 50] {
        assert_eq!(next(&mut pace, latency), lowered, "{latency}");
    }
    let after = next(&mut pace, 50);
    assert!(after >= 200, "{after}");
}
