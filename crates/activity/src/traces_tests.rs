//! Long traces: what is reported holds for the true counts, in the memory that is stated.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::names::{KeyName, KeyPart};
use crate::{
    ActivitySettings, DeniedRequest, KeptAttribute, KeySort, KeyWindow, LastDecision, LiveActivity,
    OutcomeCounts, RequestTexts, RuleActivity, SeenClient, SeenRequest, SeriesSpan, ShowRequests,
    TopKeys,
};

/// The beginning of an hour.
pub(crate) const START: u64 = 1_800_000_000;

pub(crate) fn live(memory: usize) -> LiveActivity {
    let settings = ActivitySettings { memory, threads: 2 };
    LiveActivity::new(&settings, START)
}

/// Random numbers, the same in each run.
struct TraceRandom(u64);

impl TraceRandom {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from 0 to 1.
    fn part(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap()) / f64::from(u32::MAX)
    }

    /// A rank from 0, each with a probability in proportion to 1 / (rank + 1).
    fn rank(&mut self, ranks: u32) -> u32 {
        let rank = (self.part() * f64::from(ranks).ln()).exp();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is from 1 to `ranks`"
        )]
        let rank = rank as u32;
        rank.clamp(1, ranks) - 1
    }
}

pub(crate) fn name(key: &str) -> KeyName {
    KeyName::new([KeyPart::clear("user_id", key)])
}

pub(crate) fn client(key: &str) -> TraceClient<'_> {
    TraceClient(key)
}

/// A client of the tests, whose requests have a path of the usual length.
pub(crate) struct TraceClient<'k>(&'k str);

impl SeenClient for TraceClient<'_> {
    fn name(&self) -> KeyName {
        name(self.0)
    }

    fn request(&self) -> SeenRequest {
        let (key, attributes) = ([("user_id", self.0)], [("path", "/v1/orders/1234567890")]);
        SeenRequest {
            at: START * 1_000_000,
            is_allowed: false,
            decided_by: None,
            reason: Some("over_limit"),
            denied_for: Some("over_limit"),
            retry_after: Some(1),
            grant_from: "limit",
            grant: "100/minute".into(),
            cost: 1,
            front_end: "http",
            texts: RequestTexts::new(key.into_iter(), attributes.into_iter()),
        }
    }

    fn is_shadow(&self) -> bool {
        false
    }
}

/// Shows requests as they are.
pub(crate) struct PlainRequests;

impl ShowRequests for PlainRequests {
    fn decision(&self, rule: &str, request: &SeenRequest) -> LastDecision {
        let rule = request.decided_by.as_deref().unwrap_or(rule);
        let attributes = request.texts.attributes();
        LastDecision {
            at: request.at,
            is_allowed: request.is_allowed,
            rule: Some(rule.into()),
            reason: request.reason.map(Into::into),
            retry_after: request.retry_after,
            grant_from: request.grant_from.into(),
            grant: (&*request.grant).into(),
            cost: request.cost,
            front_end: request.front_end.into(),
            attributes: attributes
                .map(|(name, value)| KeptAttribute::clear(name, value))
                .collect(),
        }
    }

    fn denied(&self, request: &SeenRequest) -> DeniedRequest {
        let key = request.texts.key();
        DeniedRequest {
            at: request.at,
            reason: request.denied_for.unwrap_or_default().into(),
            key: KeyName::new(key.map(|(name, value)| KeyPart::clear(name, value))),
            method: None,
            path: request.texts.attribute("path").map(Into::into),
            address: None,
            front_end: request.front_end.into(),
        }
    }
}

/// Counts keys that are numbers, and remembers their true counts.
struct TraceKeys {
    rule: Arc<RuleActivity>,
    text: String,
    /// By key.
    denied: Vec<u64>,
}

impl TraceKeys {
    fn new(rule: Arc<RuleActivity>) -> Self {
        Self {
            rule,
            text: String::new(),
            denied: vec![0; 1_001_000],
        }
    }

    fn deny(&mut self, key: u32) {
        self.text.clear();
        let _ = write!(self.text, "u{key}");
        self.rule.denied(&self.text, &client(&self.text));
        self.denied[key as usize] += 1;
    }

    fn true_count(&self, name: &KeyName) -> u64 {
        let key: usize = name.parts()[0]
            .value
            .trim_start_matches('u')
            .parse()
            .unwrap();
        self.denied[key]
    }

    fn assert_bounds(&self, top: &TopKeys) {
        for key in &top.keys {
            let count = self.true_count(&key.name);
            assert!(key.lower <= count && count <= key.upper, "{count}: {key:?}");
            assert!((key.upper - key.lower) * 1_000 <= top.weight, "{key:?}");
            assert_eq!((key.denied, key.used), (key.lower, 0));
        }
        assert!(
            top.error * 1_000 <= top.weight,
            "{} of {}",
            top.error,
            top.weight
        );
    }
}

#[test]
fn of_ten_million_requests_of_a_million_keys_the_true_counts_are_within_the_bounds() {
    let live = live(64 << 20);
    let mut keys = TraceKeys::new(live.rule("zipf"));
    let mut random = TraceRandom(7);
    // 50 seconds, so that all of it is within the last minute.
    for second in 0..50 {
        for _ in 0..200_000 {
            keys.deny(random.rank(1_000_000));
        }
        live.sample(START + second + 1, std::iter::empty());
    }
    let top = |window| keys.rule.top_keys(KeySort::Denied, window, START + 50, 100);
    for window in [KeyWindow::Minute, KeyWindow::Hour] {
        let top = top(window);
        assert_eq!((top.weight, top.keys.len()), (10_000_000, 100));
        keys.assert_bounds(&top);
        // The largest are the largest, in their order.
        let mut true_counts = keys.denied.clone();
        true_counts.sort_unstable_by(|one, other| other.cmp(one));
        for (key, count) in top.keys.iter().zip(true_counts).take(20) {
            assert!(key.lower <= count && count <= key.upper, "{count}: {key:?}");
            assert_eq!(u64::from(key.seen), START + 49);
        }
        let distinct = keys.denied.iter().filter(|count| **count > 0).count() as u64;
        let estimate = top.distinct_denied.count();
        assert!(
            estimate.abs_diff(distinct) * 1_000 <= 49 * distinct,
            "{estimate} of {distinct}"
        );
    }
    // What the documentation states for a rule with so many keys, on one thread.
    assert!(live.memory() < 700 << 10, "{}", live.memory());
}

#[test]
fn a_million_distinct_attackers_do_not_push_out_the_real_top_ten() {
    let live = live(64 << 20);
    let mut keys = TraceKeys::new(live.rule("attacked"));
    // A tenth of the requests are of ten real clients, 0.5 % to 1.4 % each.
    let mut random = TraceRandom(11);
    for second in 0..50_u32 {
        for number in 0..20_000 {
            keys.deny(1_000 + second * 20_000 + number);
            if number % 9 == 0 {
                let client = random.next() % 95;
                let edges = [5, 11, 18, 26, 35, 45, 56, 68, 81, 95];
                let client = edges.iter().position(|edge| client < *edge).unwrap();
                keys.deny(u32::try_from(client).unwrap());
            }
        }
        live.sample(START + u64::from(second) + 1, std::iter::empty());
    }
    for window in [KeyWindow::Minute, KeyWindow::Hour] {
        let top = keys.rule.top_keys(KeySort::Denied, window, START + 50, 10);
        keys.assert_bounds(&top);
        let named: Vec<&str> = top
            .keys
            .iter()
            .map(|key| &*key.name.parts()[0].value)
            .collect();
        assert_eq!(
            named,
            ["u9", "u8", "u7", "u6", "u5", "u4", "u3", "u2", "u1", "u0"]
        );
        let estimate = top.distinct_denied.count();
        assert!(
            estimate.abs_diff(1_000_010) * 1_000 <= 49 * 1_000_010,
            "{estimate}"
        );
    }
}

#[test]
fn keys_leave_the_windows_as_time_goes_by() {
    let live = live(1 << 20);
    let rule = live.rule("r");
    rule.denied("k", &client("k"));
    rule.used("k", 5, &client("k"));
    rule.used("other", 0, &client("other"));
    let count = |window, now| {
        let top = rule.top_keys(KeySort::Used, window, now, 10);
        top.keys
            .first()
            .map(|key| (key.used, key.denied, key.lower, key.upper, key.seen))
    };
    let at = u32::try_from(START).unwrap();
    for now in START..START + 3_700 {
        live.sample(now, std::iter::empty());
        let expected = Some((5, 1, 5, 5, at));
        assert_eq!(
            count(KeyWindow::Minute, now),
            expected.filter(|_| now < START + 60),
            "{now}"
        );
        assert_eq!(
            count(KeyWindow::Hour, now),
            expected.filter(|_| now < START + 3_600),
            "{now}"
        );
    }
}

pub(crate) fn allowed(allowed: u64) -> OutcomeCounts {
    OutcomeCounts {
        allowed,
        ..OutcomeCounts::default()
    }
}

#[test]
fn series_have_what_was_counted_in_each_second_of_each_rule_and_in_total() {
    let live = live(1 << 20);
    live.add_requests(&allowed(3));
    live.sample(
        START + 1,
        [("a", allowed(3)), ("idle", allowed(0))].into_iter(),
    );
    live.add_requests(&allowed(1));
    live.sample(
        START + 1,
        [("a", allowed(4)), ("b", allowed(1))].into_iter(),
    );
    live.sample(START + 2, [("a", allowed(4))].into_iter());
    let mut series = live.series(&SeriesSpan::ending(START + 2, 60));
    series.rules.sort_by(|one, other| one.rule.cmp(&other.rule));
    let last =
        |points: &[OutcomeCounts]| [points[57].allowed, points[58].allowed, points[59].allowed];
    assert_eq!(last(&series.total), [3, 1, 0]);
    let rules: Vec<_> = series
        .rules
        .iter()
        .map(|rule| (&*rule.rule, last(&rule.points)))
        .collect();
    assert_eq!(rules, [("a", [3, 1, 0]), ("b", [0, 1, 0])]);
    // A rule that is gone stays for a day.
    let day = START + 86_400;
    for now in START + 3..=day + 120 {
        live.sample(now, [("a", allowed(4))].into_iter());
    }
    assert!(live.find_rule("a").is_some());
    assert!(live.find_rule("b").is_none());
}

#[test]
fn memory_is_bounded_and_goes_to_the_rules_with_traffic() {
    const QUIET: usize = 290;
    let memory = 8 << 20;
    let live = live(memory);
    let ids: Vec<String> = (0..QUIET + 10)
        .map(|number| format!("rule-{number}"))
        .collect();
    let rules: Vec<_> = ids.iter().map(|id| live.rule(id)).collect();
    let mut counters = vec![OutcomeCounts::default(); rules.len()];
    let mut random = TraceRandom(3);
    for second in 1..=65 {
        for (number, rule) in rules.iter().enumerate() {
            let is_busy = number >= QUIET;
            for event in 0..if is_busy { 200 } else { 2 } {
                // A quiet rule has one key that is denied, and many others.
                let denied = if is_busy { random.rank(1_000) } else { 0 };
                let denied = format!("k{denied}");
                rule.denied(&denied, &client(&denied));
                let used = format!("{second}-{event}-with-a-name-that-is-not-short");
                rule.used(&used, 1, &client(&used));
                counters[number].denied += 1;
                counters[number].allowed += 1;
            }
        }
        let sampled = ids.iter().map(String::as_str).zip(counters.iter().copied());
        live.sample(START + second, sampled);
        assert!(
            live.memory() <= memory,
            "{} after {second} s",
            live.memory()
        );
    }
    let mut shared = 0;
    for (number, rule) in rules.iter().enumerate() {
        let top = rule.top_keys(KeySort::Denied, KeyWindow::Hour, START + 65, 10);
        assert!(!top.is_shared || number < QUIET);
        if top.is_shared && top.keys.is_empty() {
            // Others of the shared table have its names, and its counts at the most.
            assert!(top.rest > 0, "{top:?}");
            shared += 1;
            continue;
        }
        assert_eq!(&*top.keys[0].name.parts()[0].value, "k0", "{number}");
        // All that was counted since then, and nothing that did not happen.
        let seconds = START + 65 - top.from;
        let all = if number < QUIET { 2 * 65 } else { 200 * 65 };
        assert!(
            top.keys[0].lower <= all && top.keys[0].upper >= 2 * seconds,
            "{top:?}"
        );
        assert!(top.is_shared || top.error * 1_000 <= top.weight);
        shared += usize::from(top.is_shared);
    }
    let series = live.series(&SeriesSpan::ending(START + 65, 300));
    assert!(
        shared > 0 && !series.shared.is_empty(),
        "{shared}, {}",
        live.memory()
    );
    assert_eq!(
        (series.without_room, series.rules.len()),
        (shared, rules.len() - shared)
    );
}
