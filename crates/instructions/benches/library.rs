//! The library: a check of a limiter, a decision of a gate in memory, and a reservation that is settled.

#![expect(clippy::expect_used, reason = "a benchmark may")]

use std::fmt::Write;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate::rules::RuleSet;
use tidegate::{Attributes, Costs, Gate, Limiter, ManualClock, MemoryStore, Micros, Timestamp};
use tidegate_instructions::{count, run};

/// How many checks, and how many decisions, one benchmark makes.
const CHECKS: usize = 10_000;
const DECISIONS: usize = 1_000;

/// A limiter that knows these keys.
fn limiter_with(keys: usize) -> (Limiter, ManualClock, Vec<String>) {
    let clock = ManualClock::new(Timestamp::from_seconds(1_800_000_000));
    let limiter = Limiter::builder("1000/day burst 100000000")
        .clock(clock.clone())
        .build()
        .expect("a sound limit");
    let keys: Vec<String> = (0..keys).map(|number| format!("user:{number}")).collect();
    for key in &keys {
        limiter.check(key);
    }
    (limiter, clock, keys)
}

fn check(setup: (Limiter, ManualClock, Vec<String>)) -> (Limiter, ManualClock, Vec<String>) {
    let (limiter, clock, keys) = &setup;
    for key in keys.iter().cycle().take(CHECKS) {
        clock.advance(Micros::new(7));
        black_box(limiter.check(black_box(key)));
    }
    setup
}

/// A gate with one rule for every request, and as many others as to make `rules`, of which one is about the request
/// if there are any.
fn gate_with(rules: usize) -> (Gate, ManualClock) {
    let limit = "per: [user_id], missing: deny, limit: 1000/day burst 100000000";
    let mut text = format!("rules:\n- {{id: all, {limit}}}\n");
    for number in 1..rules {
        let _ = writeln!(
            text,
            "- {{id: r{number}, match: {{path: /svc{number}/**}}, {limit}}}"
        );
    }
    let clock = ManualClock::new(Timestamp::from_seconds(1_800_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let rules = RuleSet::from_yaml(&text).expect("rules that are sound");
    let gate = Gate::with_clock(store, rules, clock.clone());
    decide_once(&gate);
    (gate, clock)
}

fn decide(setup: (Gate, ManualClock)) -> (Gate, ManualClock) {
    let (gate, clock) = &setup;
    for _ in 0..DECISIONS {
        clock.advance(Micros::new(7));
        decide_once(gate);
    }
    setup
}

/// A gate with one rule for every request that counts tokens.
fn gate_by_tokens() -> (Gate, ManualClock) {
    let rules = "rules: [{id: all, per: [user_id], missing: deny, unit: tokens, limit: 1000/day burst 100000000}]";
    let clock = ManualClock::new(Timestamp::from_seconds(1_800_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let rules = RuleSet::from_yaml(rules).expect("rules that are sound");
    let gate = Gate::with_clock(store, rules, clock.clone());
    reserve_once(&gate);
    (gate, clock)
}

fn reserve(setup: (Gate, ManualClock)) -> (Gate, ManualClock) {
    let (gate, clock) = &setup;
    for _ in 0..DECISIONS {
        clock.advance(Micros::new(7));
        reserve_once(gate);
    }
    setup
}

/// One reservation that is settled for less, with the making of its attributes and costs.
fn reserve_once(gate: &Gate) {
    let mut attributes = Attributes::new();
    describe(&mut attributes);
    let tokens = |tokens| Costs::by_unit([("tokens", tokens)]).expect("a sound unit");
    let guard = ready(gate.reserve(&attributes, tokens(black_box(60))));
    let guard = guard.expect("a cost above zero");
    let settled = ready(guard.settle(tokens(black_box(25))));
    black_box(settled).expect("a store in memory does not fail");
}

/// One decision, with the making of its attributes.
fn decide_once(gate: &Gate) {
    let mut attributes = Attributes::new();
    describe(&mut attributes);
    black_box(ready(gate.decide(&attributes)));
}

fn describe(attributes: &mut Attributes<'_>) {
    for (name, value) in [
        ("path", "/svc7/users/42"),
        ("method", "GET"),
        ("host", "h7.example.com"),
        ("user_id", "u1"),
        ("ip", "203.0.113.7"),
    ] {
        let inserted = attributes.insert(black_box(name), black_box(value));
        inserted.expect("attributes that are sound");
    }
}

/// What a future of a gate in memory returns.
fn ready<F: Future>(future: F) -> F::Output {
    let future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(output) = future.poll(&mut context) else {
        unreachable!("a store in memory answers without waiting");
    };
    output
}

fn main() {
    run(&[
        ("check.one_key", || count(limiter_with(1), check)),
        ("check.ten_thousand_keys", || {
            count(limiter_with(10_000), check);
        }),
        ("decide.one_rule", || count(gate_with(1), decide)),
        ("reserve_and_settle.one_rule", || {
            count(gate_by_tokens(), reserve);
        }),
        ("decide.thousand_rules", || count(gate_with(1_000), decide)),
    ]);
}
