//! What is decided over HTTP is what the core decides in process, in every field and to the microsecond.

use std::cell::{Cell, RefCell};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidegate::document::Node;
use tidegate::gate::{Decision, LimitOutcome};
use tidegate::headers::HeaderSettings;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{Algorithm, Anchor, Attributes, Gate, Limit, MemoryStore, Micros, Outcome};
use tidegate::{PermitId, Rate, Reason, Timestamp, Window};
use tidegate_testkit::block_on;
use tidegate_testkit::timeline::{OneKey, START, any_limit, steps_for};

use tidegate_testkit_server::TestFolder;
use tidegate_testkit_server::{ClientReply, HttpClient};

const CASES: u32 = 60;
const MAX_STEPS: usize = 40;
const KEYS: [&str; 2] = ["a", "b"];

/// Some rules and what is asked of them.
#[derive(Debug, Clone)]
struct Case {
    rules: Vec<WrittenRule>,
    steps: Vec<CheckStep>,
}

#[derive(Debug, Clone)]
struct WrittenRule {
    /// One, or several that are counted alike.
    limits: Vec<Limit>,
    cost: u64,
    is_shadow: bool,
    blocks_b: bool,
}

#[derive(Debug, Clone, Copy)]
struct CheckStep {
    pause: Micros,
    /// How far the clock goes back instead, now and then.
    back: Option<Micros>,
    cost: u64,
    key: &'static str,
    releases: bool,
}

#[test]
fn every_answer_over_http_is_the_one_that_the_core_gives() {
    let index = TestFolder::new();
    let server = index.serve(&["--trust-timestamps", "--log-level", "warn"]);
    let client = RefCell::new(server.client());
    let number = Cell::new(0);
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(&any_case(), |case| {
        number.set(number.get() + 1);
        play(&mut client.borrow_mut(), number.get(), &case)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Plays a case on both sides. Its rules have ids of their own, so that nothing was used of them.
fn play(client: &mut HttpClient, number: u32, case: &Case) -> Result<(), TestCaseError> {
    let rules: Vec<Value> = case
        .rules
        .iter()
        .enumerate()
        .map(|(index, rule)| rule.written(&format!("case-{number}-{index}")))
        .collect();
    let document = json!({ "rules": rules });
    let put = client.ask("PUT /v1/rules", &document.to_string());
    prop_assert_eq!(put.status, 200, "{:?}", put);
    let gate = gate(&document);
    let mut alone = Alone::of(case);

    let mut now = START;
    for step in &case.steps {
        now = step.back.map_or(now + step.pause, |back| now - back);
        let reply = client.ask("POST /v1/check", &question(step, now));
        let mut attributes = Attributes::new().with_cost(step.cost).at(now);
        attributes.insert("key", step.key).unwrap();
        let decision = block_on(gate.decide(&attributes));
        let lease = compare(&reply, &decision)?;
        alone.compare(step, now, &decision)?;
        if step.releases
            && let (Some(theirs), Some(ours)) = (lease, decision.permit())
        {
            let released = client.ask(&format!("DELETE /v1/leases/{theirs}"), "");
            let is_released = block_on(gate.release(ours)).unwrap();
            let expected = if is_released { 204 } else { 404 };
            prop_assert_eq!(released.status, expected, "{:?}", released);
            alone.release();
        }
    }
    Ok(())
}

fn question(step: &CheckStep, now: Timestamp) -> String {
    let (seconds, micros) = (now.as_micros() / 1_000_000, now.as_micros() % 1_000_000);
    format!(
        r#"{{"attributes": {{"key": "{}"}}, "cost": {}, "timestamp": {seconds}.{micros:06}}}"#,
        step.key, step.cost
    )
}

fn gate(document: &Value) -> Gate {
    let node = Node::deserialize(document).unwrap();
    let rules = RuleSet::from_node(&node, &RuleSettings::default());
    Gate::new(MemoryStore::new(), rules.unwrap())
}

/// Every field of a reply against the decision. The lease that it names, whose id is its own.
fn compare(reply: &ClientReply, decision: &Decision) -> Result<Option<String>, TestCaseError> {
    let status = if decision.is_allowed() { 200 } else { 429 };
    prop_assert_eq!(reply.status, status, "{:?}", reply);
    let answered: Answered = serde_json::from_str(&reply.body)
        .map_err(|error| TestCaseError::fail(format!("{error}: {}", reply.body)))?;
    let lease = answered.lease.clone();
    prop_assert_eq!(lease.is_some(), decision.permit().is_some());
    let expected = Answered::of(decision, lease.clone());
    prop_assert_eq!(answered, expected, "{}", &reply.body);

    let is_of_limits =
        |(name, _): &&(String, String)| name.contains("ratelimit") || name == "retry-after";
    let mut shown: Vec<(String, String)> =
        reply.headers.iter().filter(is_of_limits).cloned().collect();
    let headers = decision.headers(&HeaderSettings::default());
    let mut expected: Vec<(String, String)> = headers
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    shown.sort();
    expected.sort();
    prop_assert_eq!(shown, expected);
    Ok(lease)
}

/// The answer of a check, each field of it and no other.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    allowed: bool,
    rule: Option<String>,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_time: Option<Seconds>,
    retry_after: Option<Seconds>,
    delay: Option<Seconds>,
    degraded: Option<bool>,
    lease: Option<String>,
    limits: Vec<AnsweredLimit>,
    reason: Option<String>,
    missing: Option<Vec<String>>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnsweredLimit {
    rule: String,
    algorithm: String,
    window: Option<Seconds>,
    rate: u64,
    allowed: bool,
    limit: u64,
    remaining: u64,
    reset_time: Seconds,
    retry_after: Option<Seconds>,
    delay: Seconds,
    shadow: bool,
    degraded: bool,
    reason: Option<String>,
    missing: Option<Vec<String>>,
}

/// A number of seconds, read as text to the microsecond and never through a float.
#[derive(Debug, PartialEq, Clone, Copy)]
struct Seconds(u64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let (whole, decimals) = raw.get().split_once('.').unwrap_or((raw.get(), ""));
        let micros = format!("{whole}{decimals:0<6}");
        let is_exact = decimals.len() <= 6 && !raw.get().ends_with('.');
        match micros.parse() {
            Ok(micros) if is_exact => Ok(Self(micros)),
            _ => Err(D::Error::custom(format!("no seconds: {raw}"))),
        }
    }
}

impl Answered {
    fn of(decision: &Decision, lease: Option<String>) -> Self {
        let headline = decision.headline();
        let outcome = headline.map(|headline| headline.outcome);
        Self {
            allowed: decision.is_allowed(),
            rule: decision.rule().map(str::to_owned),
            limit: outcome.map(|outcome| outcome.limit),
            remaining: outcome.map(|outcome| outcome.remaining),
            reset_time: outcome.map(|outcome| Seconds(outcome.reset_at.as_micros())),
            retry_after: outcome.and_then(wait),
            delay: outcome.map(|_| Seconds(Micros::from(decision.delay()).get())),
            degraded: outcome.map(|_| false),
            lease,
            limits: decision.limits().map(|answer| limit(&answer)).collect(),
            reason: decision.reason().map(name),
            missing: headline.as_ref().and_then(missing),
        }
    }
}

fn limit(answer: &LimitOutcome<'_>) -> AnsweredLimit {
    let outcome = answer.outcome;
    let window = answer.limit.and_then(Limit::window);
    let length = |window| match window {
        Window::Span(span) => span.get(),
        calendar => {
            let (start, end) = calendar.around(outcome.at);
            end.since(start).get()
        }
    };
    AnsweredLimit {
        rule: answer.rule.id().to_owned(),
        algorithm: answer
            .limit
            .map_or("blocked", |limit| limit.algorithm().name())
            .to_owned(),
        window: window.map(|window| Seconds(length(window))),
        rate: answer.limit.map_or(0, |limit| limit.rate().count),
        allowed: outcome.allowed,
        limit: outcome.limit,
        remaining: outcome.remaining,
        reset_time: Seconds(outcome.reset_at.as_micros()),
        retry_after: wait(outcome),
        delay: Seconds(outcome.delay.get()),
        shadow: answer.is_shadow,
        degraded: false,
        reason: answer.reason.map(name),
        missing: missing(answer),
    }
}

fn name(reason: Reason) -> String {
    reason.name().to_owned()
}

fn missing(answer: &LimitOutcome<'_>) -> Option<Vec<String>> {
    let is_missing = answer.reason == Some(Reason::MissingAttribute);
    is_missing.then(|| answer.missing().map(str::to_owned).collect())
}

fn wait(outcome: &Outcome) -> Option<Seconds> {
    outcome.retry.wait().map(|wait| Seconds(wait.get()))
}

/// A case of a single limit, asked of the store without rules and gates. No key for other cases.
struct Alone {
    keys: Vec<OneKey>,
    factor: u64,
    /// How often each key was charged, which is the number of its last lease.
    charges: [u128; KEYS.len()],
    last: usize,
}

impl Alone {
    fn of(case: &Case) -> Self {
        let keys = match case.rules.as_slice() {
            [rule] if rule.limits.len() == 1 && !rule.blocks_b => {
                KEYS.map(|_| OneKey::new(&rule.limits[0])).into()
            }
            _ => Vec::new(),
        };
        Self {
            keys,
            factor: case.rules[0].cost,
            charges: [0; KEYS.len()],
            last: 0,
        }
    }

    fn compare(
        &mut self,
        step: &CheckStep,
        now: Timestamp,
        decision: &Decision,
    ) -> Result<(), TestCaseError> {
        self.last = KEYS.iter().position(|key| *key == step.key).unwrap();
        if let Some(key) = self.keys.get_mut(self.last) {
            self.charges[self.last] += 1;
            let outcome = key.charge(step.cost * self.factor, now);
            let answer = decision.limits().next().unwrap();
            prop_assert_eq!(outcome, *answer.outcome);
        }
        Ok(())
    }

    fn release(&self) {
        if let Some(key) = self.keys.get(self.last) {
            key.store
                .release(PermitId::from_u128(self.charges[self.last]));
        }
    }
}

impl WrittenRule {
    /// As it is sent to the server.
    fn written(&self, id: &str) -> Value {
        let algorithm = self.limits[0].algorithm();
        let rates: Vec<String> = self
            .limits
            .iter()
            .map(|limit| limit.rate().to_string())
            .collect();
        let mut rule = json!({
            "id": id,
            "per": ["key"],
            "limit": rates.join("; "),
            "algorithm": algorithm.name(),
            "cost": self.cost,
        });
        let mut put = |key: &str, value: Value| rule[key] = value;
        match algorithm {
            Algorithm::FixedWindow { anchor } => put(
                "anchor",
                match anchor {
                    Anchor::Clock => json!("clock"),
                    Anchor::Epoch => panic!("rules cannot write it"),
                    Anchor::FirstRequest => json!("first_request"),
                },
            ),
            Algorithm::SlidingWindowSlots { slots, strict } => {
                if let Some(slots) = slots {
                    put("slots", json!(slots));
                }
                put("strict", json!(strict));
            }
            Algorithm::TokenBucket { max_delay } if !max_delay.is_zero() => {
                put("max_delay", json!(max_delay.to_string()));
            }
            Algorithm::LeakyBucket { shape } => put("shape", json!(shape)),
            Algorithm::Concurrency { lease_ttl } => {
                put("limit", json!(self.limits[0].rate().count));
                put("lease_ttl", json!(lease_ttl.to_string()));
            }
            _ => {}
        }
        if self.is_shadow {
            put("mode", json!("shadow"));
        }
        if self.blocks_b {
            put("overrides", json!({"b": "blocked"}));
        }
        rule
    }
}

fn any_case() -> impl Strategy<Value = Case> {
    let rules = prop_oneof![
        3 => prop::collection::vec(any_rule(true), 1),
        2 => prop::collection::vec(any_rule(false), 2..4),
    ];
    rules.prop_flat_map(|rules| {
        let steps = any_steps(&rules[0].limits[0]);
        steps.prop_map(move |steps| Case {
            rules: rules.clone(),
            steps,
        })
    })
}

fn any_rule(is_alone: bool) -> impl Strategy<Value = WrittenRule> {
    let rarely = move || prop::bool::weighted(if is_alone { 0.1 } else { 0.2 });
    let limits = prop_oneof![
        3 => any_written_limit().prop_map(|limit| vec![limit]),
        1 => any_written_limit().prop_map(|limit| with_another(&limit)),
    ];
    let cost = prop_oneof![3 => Just(1), 1 => 2..4_u64];
    (limits, cost, rarely(), rarely()).prop_map(|(limits, cost, is_shadow, blocks_b)| WrittenRule {
        limits,
        cost,
        is_shadow,
        blocks_b,
    })
}

/// Limits that can be written down: spans of time in whole milliseconds, and calendar periods too.
fn any_written_limit() -> impl Strategy<Value = Limit> {
    let millis = |span: Micros| Micros::from_millis((span.get() / 1_000).max(1));
    let written = any_limit().prop_filter_map("not in whole milliseconds", move |limit| {
        let mut rate = limit.rate();
        rate.window = rate.window.map(|window| match window {
            Window::Span(span) => Window::Span(millis(span)),
            calendar => calendar,
        });
        let algorithm = match limit.algorithm() {
            Algorithm::TokenBucket { max_delay } if !max_delay.is_zero() => {
                Algorithm::TokenBucket {
                    max_delay: millis(max_delay),
                }
            }
            Algorithm::Concurrency { lease_ttl } => Algorithm::Concurrency {
                lease_ttl: millis(lease_ttl),
            },
            other => other,
        };
        Limit::new(rate, algorithm).ok()
    });
    let calendar = (1..20_u64, any::<bool>()).prop_map(|(count, is_month)| {
        let window = if is_month {
            Window::Month
        } else {
            Window::Year
        };
        let rate = Rate::new(count, window);
        let anchor = Anchor::Clock;
        Limit::new(rate, Algorithm::FixedWindow { anchor }).unwrap()
    });
    prop_oneof![15 => written, 1 => calendar]
}

/// The limit and a second one, where one is possible: half as much in a tenth of the time.
fn with_another(limit: &Limit) -> Vec<Limit> {
    let rate = limit.rate();
    let Some(Window::Span(span)) = rate.window else {
        return vec![limit.clone()];
    };
    let tenth = Micros::from_millis(span.get() / 10_000);
    let mut second = Rate::new(rate.count.div_ceil(2), tenth);
    second.burst = rate.burst;
    match Limit::new(second, limit.algorithm()) {
        Ok(second) => vec![limit.clone(), second],
        Err(_) => vec![limit.clone()],
    }
}

fn any_steps(limit: &Limit) -> impl Strategy<Value = Vec<CheckStep>> + use<> {
    let memory = OneKey::new(limit).memory().get();
    let back =
        prop_oneof![1 => Just(1), 2 => 1..=memory.max(1), 1 => 1..=memory.max(1).saturating_mul(3)];
    let seconds = (
        prop::option::weighted(0.1, back.prop_map(Micros::new)),
        prop::sample::select(vec!["a", "a", "a", "b"]),
        prop::bool::weighted(0.3),
    );
    let seconds = prop::collection::vec(seconds, MAX_STEPS);
    (steps_for(limit), seconds).prop_map(|(steps, seconds)| {
        let step = |(step, (back, key, releases)): (
            tidegate_testkit::timeline::TimelineStep,
            (Option<Micros>, &'static str, bool),
        )| CheckStep {
            pause: step.pause,
            back,
            cost: step.cost,
            key,
            releases,
        };
        steps.into_iter().zip(seconds).map(step).collect()
    })
}
