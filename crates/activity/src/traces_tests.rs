//! Long traces: what is reported holds for the true counts, in the memory that is stated.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::names::{KeyName, KeyPart};
use crate::{
    ActivityPart, ActivitySettings, DeniedRequest, KeptAttribute, KeySort, KeyWindow, LastDecision,
    LiveActivity, OutcomeCounts, RequestTexts, RuleActivity, SeenClient, SeenRequest, SeriesSpan,
    ShowRequests, TopKeys,
};

/// The beginning of an hour.
const START: u64 = 1_800_000_000;

fn live(memory: usize) -> LiveActivity {
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

fn name(key: &str) -> KeyName {
    KeyName::new([KeyPart::clear("user_id", key)])
}

fn client(key: &str) -> TraceClient<'_> {
    TraceClient(key)
}

/// A client of the tests, whose requests have a path of the usual length.
struct TraceClient<'k>(&'k str);

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

fn allowed(allowed: u64) -> OutcomeCounts {
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
