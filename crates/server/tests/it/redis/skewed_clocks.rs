//! Limiters whose clocks disagree, over one Redis: its clock decides, so they grant what one would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::rules::RuleSet;
use tidegate::{Attributes, Clock, Gate, SystemClock, Timestamp};
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::redis::RedisServer;
use tokio::task::JoinSet;

const TASKS: usize = 200;
const LIMIT: usize = 1_000;

/// How far the clock of each limiter is off, in milliseconds.
const SKEWS: [i64; 8] = [-5_000, -3_500, -1_000, -1, 0, 700, 2_500, 5_000];

const RULES: &str = "
rules:
  - {id: fixed_window, per: [key], limit: 1000/day, algorithm: fixed_window, anchor: first_request}
  - {id: sliding_window_log, per: [key], limit: 1000/day, algorithm: sliding_window_log}
  - {id: sliding_window_counter, per: [key], limit: 1000/day, algorithm: sliding_window_counter}
  - {id: sliding_window_slots, per: [key], limit: 1000/day, algorithm: sliding_window_slots}
  - {id: token_bucket, per: [key], limit: 1000/day, algorithm: token_bucket}
  - {id: leaky_bucket, per: [key], limit: 1000/day, algorithm: leaky_bucket, shape: false}
  - {id: passing, per: [key], limit: 300 per 700ms, algorithm: fixed_window}
";

/// A clock that is off by some milliseconds.
struct Skewed(i64);

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        let micros = SystemClock.now().as_micros();
        Timestamp::from_micros(micros.saturating_add_signed(self.0 * 1_000))
    }
}

/// A gate for each clock, all with the one rule of that name.
async fn gates(redis: &RedisServer, rule: &str, is_leased: bool) -> Vec<Arc<Gate>> {
    let chosen = |line: &&str| !line.contains("id:") || line.contains(&format!("id: {rule},"));
    let lines: Vec<&str> = RULES.lines().filter(chosen).collect();
    let mut text = lines.join("\n");
    if is_leased {
        text = text.replace('}', ", sync: leased}");
    }
    let mut gates = Vec::new();
    for skew in SKEWS {
        let mut settings = RedisSettings::new(redis.url().parse().unwrap());
        // This is not about how fast Redis is.
        settings.deadline = Duration::from_secs(10);
        let store = RedisStore::open(settings);
        store.connected(Duration::from_secs(10)).await.unwrap();
        let rules = RuleSet::from_yaml(&text).unwrap();
        let gate = Gate::with_clock(store, rules, Skewed(skew));
        gates.push(Arc::new(gate));
    }
    gates
}

/// What all tasks of all gates were granted until `is_enough`: when each of them ends.
async fn everyone_asks(
    gates: &[Arc<Gate>],
    key: &'static str,
    is_enough: impl Fn(Option<Timestamp>) -> bool + Clone + Send + 'static,
) -> Vec<Timestamp> {
    let mut tasks = JoinSet::new();
    for gate in gates {
        for _ in 0..TASKS {
            let (gate, is_enough) = (Arc::clone(gate), is_enough.clone());
            tasks.spawn(async move {
                let mut attributes = Attributes::new();
                attributes.insert("key", key).unwrap();
                let mut granted = Vec::new();
                loop {
                    let decision = gate.decide(&attributes).await;
                    assert!(!decision.is_degraded(), "Redis has answered all the time");
                    let answer = decision.limits().next().unwrap();
                    let end = decision.is_allowed().then_some(answer.outcome.reset_at);
                    granted.extend(end);
                    if is_enough(end) {
                        return granted;
                    }
                    // Those who are denied ask again and again, and leave the machine some time for Redis.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn limiters_with_skewed_clocks_grant_exactly_the_limit() {
    let redis = RedisServer::start();
    let algorithms = RULES.lines().filter(|line| line.contains("/day"));
    let names = algorithms.filter_map(|line| line.split([' ', ',']).nth(4));
    for name in names {
        let gates = gates(&redis, name, false).await;
        let granted = everyone_asks(&gates, "exact", |end| end.is_none()).await;
        assert_eq!(granted.len(), LIMIT, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limiters_with_skewed_clocks_and_leases_grant_no_more_than_the_limit() {
    let redis = RedisServer::start();
    let algorithms = RULES.lines().filter(|line| line.contains("/day"));
    let names = algorithms.filter_map(|line| line.split([' ', ',']).nth(4));
    for name in names.filter(|name| *name != "sliding_window_log") {
        let gates = gates(&redis, name, true).await;
        let granted = everyone_asks(&gates, "leased", |end| end.is_none()).await;
        assert!(granted.len() <= LIMIT, "{name}: {}", granted.len());
        assert!(
            granted.len() >= LIMIT * 95 / 100,
            "{name}: {}",
            granted.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_that_pass_hold_no_more_than_the_limit_whatever_the_clocks_say() {
    let redis = RedisServer::start();
    for is_leased in [false, true] {
        let gates = gates(&redis, "passing", is_leased).await;
        let key = if is_leased { "leased" } else { "exact" };
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let is_over = move |granted: Option<Timestamp>| {
            let mut seen = seen.lock();
            seen.extend(granted);
            seen.len() > 4
        };
        let mut windows = BTreeMap::<Timestamp, usize>::new();
        for reset_at in everyone_asks(&gates, key, is_over).await {
            *windows.entry(reset_at).or_default() += 1;
        }
        assert!(
            windows.values().all(|granted| *granted <= 300),
            "{windows:?}"
        );
        // A busy machine may sleep through some of a window.
        let is_full = windows.values().any(|granted| *granted == 300);
        assert!(is_leased || is_full, "{windows:?}");
    }
}
