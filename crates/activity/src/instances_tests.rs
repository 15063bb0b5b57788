//! Several instances, and one after a restart: what they know of each other, and what is kept.

use crate::traces_tests::{PlainRequests, START, allowed, client, live};
use crate::{
    ActivityPart, ActivitySettings, KeySort, KeyWindow, LiveActivity, OutcomeCounts, SeriesSpan,
};

/// Denies keys on an instance, each a few times, within the first seconds.
fn deny_all(live: &LiveActivity, keys: std::ops::Range<u32>) {
    let rule = live.rule("r");
    for key in keys.clone().chain(keys) {
        let key = format!("u{key}");
        rule.denied(&key, &client(&key));
    }
    live.sample(START + 5, [("r", allowed(1))].into_iter());
    live.sample(START + 12, [("r", allowed(1))].into_iter());
}

/// The distinct keys of both instances, as the first one answers: published in at most `most` bytes.
fn distinct_of_both(one: &LiveActivity, other: &LiveActivity, most: usize) -> (u64, Option<f64>) {
    let bytes = other
        .part(START + 12, 50, 20, &PlainRequests)
        .to_bytes(most);
    assert!(bytes.len() <= most);
    let part = ActivityPart::from_bytes(&bytes).unwrap();
    let asked = (KeySort::Denied, KeyWindow::Hour);
    let own = one.rule("r").top_keys(asked.0, asked.1, START + 12, 100);
    let all = own.with_parts(part.rules.iter(), asked, 20);
    (all.distinct_denied.count(), all.distinct_denied.error())
}

#[test]
fn instances_with_one_seed_count_distinct_keys_together() {
    let instances = |keys: [std::ops::Range<u32>; 2]| {
        let (one, other) = (live(64 << 20), live(64 << 20));
        assert!(other.adopt_seed(one.seed()));
        let [first, second] = keys;
        deny_all(&one, first);
        deny_all(&other, second);
        (one, other)
    };
    let (one, other) = instances([0..60, 60..120]);
    assert_eq!(distinct_of_both(&one, &other, 64 << 10), (120, Some(0.0)));
    let (one, other) = instances([0..60, 30..90]);
    assert_eq!(distinct_of_both(&one, &other, 64 << 10), (90, Some(0.0)));
    let (one, other) = instances([0..50_000, 40_000..90_000]);
    for (most, error) in [(64 << 10, 0.01625), (8 << 10, 0.0325), (2 << 10, 0.065)] {
        let (count, stated) = distinct_of_both(&one, &other, most);
        assert_eq!(stated, Some(error), "{most}");
        let wrong = f64::from(u32::try_from(count.abs_diff(90_000)).unwrap());
        assert!(wrong <= 3.0 * error * 90_000.0, "{count} in {most}");
    }
}

#[test]
fn instances_with_different_seeds_report_the_larger_number_as_a_lower_bound() {
    let (one, other) = (live(1 << 20), live(1 << 20));
    deny_all(&one, 0..60);
    deny_all(&other, 60..130);
    assert_eq!(distinct_of_both(&one, &other, 64 << 10), (70, None));
}

#[test]
fn another_seed_forgets_the_keys_and_keeps_the_counts() {
    let live = live(1 << 20);
    deny_all(&live, 0..60);
    let seed = live.seed();
    let top = |now| {
        let rule = live.rule("r");
        rule.top_keys(KeySort::Denied, KeyWindow::Hour, now, 10)
    };
    assert!(live.adopt_seed(seed));
    assert_eq!(top(START + 12).keys.len(), 10, "it is the same seed");
    let memory = live.memory();
    assert!(live.adopt_seed(seed ^ 1));
    assert!(live.memory() < memory);
    let forgotten = top(START + 12);
    assert_eq!((forgotten.keys.len(), forgotten.weight), (0, 0));
    assert_eq!(forgotten.from, START + 12);
    let series = live.series(&SeriesSpan::ending(START + 12, 60));
    assert_eq!(series.rules.len(), 1);
    deny_all(&live, 0..5);
    assert_eq!(top(START + 12).distinct_denied.count(), 5);
}

#[test]
fn counts_survive_a_restart_and_the_time_between_is_a_gap() {
    let before = live(1 << 20);
    for second in 0..90 {
        before.add_requests(&allowed(2));
        let counters = [("a", allowed(second + 1)), ("b", allowed(7))];
        before.sample(START + second, counters.into_iter());
    }
    before.rule("a").denied("secret", &client("secret"));
    let bytes = before.history().to_bytes(8 << 20);
    assert!(!bytes.windows(6).any(|text| text == b"secret"));
    let history = ActivityPart::from_bytes(&bytes).unwrap();
    assert_eq!(history, before.history());

    let now = START + 120;
    let settings = ActivitySettings {
        memory: 1 << 20,
        threads: 1,
    };
    let after = LiveActivity::new(&settings, now);
    after.restore(&history, now);
    after.add_requests(&allowed(1));
    after.sample(now + 1, [("a", allowed(1))].into_iter());
    let sums = |seconds| {
        let series = after.series(&SeriesSpan::ending(now + 1, seconds));
        let sum = |points: &[OutcomeCounts]| points.iter().map(|point| point.allowed).sum::<u64>();
        let mut rules: Vec<_> = series
            .rules
            .iter()
            .map(|rule| (&*rule.rule, sum(&rule.points)))
            .map(|(rule, sum)| (rule.to_owned(), sum))
            .collect();
        rules.sort();
        (sum(&series.total), rules)
    };
    let expected = (181, vec![("a".to_owned(), 91), ("b".to_owned(), 7)]);
    assert_eq!((sums(300), sums(86_400)), (expected.clone(), expected));
    let gaps = |seconds| {
        after
            .coverage()
            .gaps(&SeriesSpan::ending(now + 1, seconds), now + 1)
    };
    assert_eq!(gaps(60), [(START + 90, now)]);
    assert_eq!(gaps(300), [(now + 2 - 300, START), (START + 90, now)]);

    // Published again, and kept by the next one, with the rule that is not there any more.
    assert_eq!(after.part(now + 1, 50, 20, &PlainRequests).rules.len(), 2);
    let next = after.history();
    assert_eq!(next.rules.len(), 2);
    assert_eq!(next.coverage, after.coverage());
    // It is dropped after a day.
    for at in (now + 1..now + 86_520).step_by(10) {
        after.sample(at, [("a", allowed(1))].into_iter());
    }
    assert!(after.find_rule("b").is_none());
}

#[test]
fn a_history_that_is_larger_than_the_memory_is_restored_in_part() {
    let before = live(64 << 20);
    let ids: Vec<String> = (0..2_000).map(|number| format!("rule-{number}")).collect();
    for second in 0..90 {
        let counters = ids.iter().enumerate().map(|(number, id)| {
            let count = (second + 1) * (1 + number as u64);
            (id.as_str(), allowed(count))
        });
        before.sample(START + second, counters);
    }
    let history = ActivityPart::from_bytes(&before.history().to_bytes(8 << 20)).unwrap();
    assert_eq!(history.rules.len(), 2_000);
    let memory = 2 << 20;
    let after = live(memory);
    after.restore(&history, START + 100);
    assert!(after.memory() <= memory, "{}", after.memory());
    // Those with the most traffic.
    let series = after.series(&SeriesSpan::ending(START + 100, 300));
    assert!((50..2_000).contains(&series.rules.len()));
    assert!(after.find_rule("rule-1999").is_some());
    assert!(after.find_rule("rule-0").is_none());
}
