//! The library: a check of a limiter, and a decision of a gate in memory.

#![expect(missing_docs, reason = "gungraun's macros write public items")]
#![expect(clippy::expect_used, reason = "a benchmark may")]

use std::fmt::Write;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use gungraun::{library_benchmark, library_benchmark_group, main};
use tidegate::rules::RuleSet;
use tidegate::{Attributes, Gate, Limiter, ManualClock, MemoryStore, Micros, Timestamp};

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

#[library_benchmark]
#[bench::one_key(args = (1), setup = limiter_with)]
#[bench::ten_thousand_keys(args = (10_000), setup = limiter_with)]
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

#[library_benchmark]
#[bench::one_rule(args = (1), setup = gate_with)]
#[bench::thousand_rules(args = (1_000), setup = gate_with)]
fn decide(setup: (Gate, ManualClock)) -> (Gate, ManualClock) {
    let (gate, clock) = &setup;
    for _ in 0..DECISIONS {
        clock.advance(Micros::new(7));
        decide_once(gate);
    }
    setup
}

/// One decision, with the making of its attributes.
fn decide_once(gate: &Gate) {
    let mut attributes = Attributes::new();
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
    let decision = pin!(gate.decide(&attributes));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(decision) = decision.poll(&mut context) else {
        unreachable!("a store in memory answers without waiting");
    };
    black_box(decision);
}

library_benchmark_group!(name = library, benchmarks = [check, decide]);
main!(library_benchmark_groups = [library]);
