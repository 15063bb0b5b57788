//! Calls of Envoy among few and many routes, as Envoy Gateway writes their limits. Twenty thousand routes may cost a call at most
//! twice as much as ten. Also the reading of twenty thousand, which `scripts/instructions` compares with what was recorded.

#![expect(clippy::expect_used, reason = "a benchmark may")]

use std::fmt::Write;
use std::hint::black_box;

use bytes::Bytes;
use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{Gate, ManualClock, MemoryStore, Timestamp};
use tidegate_codec::grpc::proto::rate_limit::{
    DescriptorEntry, RateLimitDescriptor, RateLimitRequest,
};
use tidegate_codec::grpc::{self, AnswerSettings, MessageBuffer, RateLimitAnswer, RateLimitCall};
use tidegate_instructions::{count, run};

/// How many calls one benchmark decides.
const CALLS: usize = 1_000;
const DOMAIN: &str = "infra/gw/http";

fn route(number: usize) -> String {
    format!("httproute/infra/web-{number}/rule/0/match/0/*")
}

fn text(routes: usize) -> String {
    let mut text = format!("domain: {DOMAIN}\ndescriptors:\n");
    for number in 0..routes {
        let name = route(number);
        let _ = writeln!(
            text,
            "- {{key: \"{name}\", value: \"{name}\", descriptors: [{{key: rule-0-match-0, rate_limit: {{unit: hour, requests_per_unit: 1000000000}}}}]}}"
        );
    }
    text
}

/// A gate with so many routes, and a call with so many descriptors of different ones.
fn calls(routes: usize, descriptors: usize) -> (Gate, Bytes) {
    let clock = ManualClock::new(Timestamp::from_seconds(1_800_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let rules = RuleSet::from_yaml(&text(routes)).expect("rules that are sound");
    let gate = Gate::with_clock(store, rules, clock);
    let entry = |key: &str, value: &str| DescriptorEntry {
        key: key.to_owned(),
        value: value.to_owned().into(),
    };
    let descriptor = |number: usize| {
        let name = route(number);
        RateLimitDescriptor {
            entries: vec![entry(&name, &name), entry("rule-0-match-0", "u1")],
            ..RateLimitDescriptor::default()
        }
    };
    let call = RateLimitRequest {
        domain: DOMAIN.to_owned(),
        descriptors: (0..descriptors).map(descriptor).collect(),
        hits_addend: 0,
    };
    let frame = grpc::framed(&call);
    decide(&gate, &frame);
    (gate, frame)
}

/// One call from its message to its answer, as the front end of gRPC decides it.
fn decide(gate: &Gate, frame: &Bytes) {
    let mut arrived = MessageBuffer::default();
    arrived.put(black_box(frame.clone()));
    let message = arrived.take().expect("a frame").expect("a whole message");
    let asked = RateLimitCall::read(&message).expect("a call");
    let rules = gate.rules();
    let mut parts = grpc::Parts::new();
    grpc::add_parts(&mut parts, &asked, rules.descriptor_units()).expect("a sound call");
    // The bound of the work of conditions.
    assert!(!rules.has_conditions(), "no route has a condition");
    let decided = gate.try_decide_by(&rules, FrontEnd::Grpc, &parts[..]);
    let decisions = decided.expect("a store in memory").into_decisions();
    let answer = RateLimitAnswer {
        asked: &asked,
        rules: &rules,
        parts: &parts,
        decisions: &decisions,
    };
    black_box(answer.framed(&AnswerSettings::default()));
}

fn decide_all(setup: (Gate, Bytes)) -> (Gate, Bytes) {
    for _ in 0..CALLS {
        decide(&setup.0, &setup.1);
    }
    setup
}

fn main() {
    run(&[
        ("decide.ten", || count(calls(10, 1), decide_all)),
        ("decide.twenty_thousand", || {
            count(calls(20_000, 1), decide_all);
        }),
        ("decide_four.ten", || count(calls(10, 4), decide_all)),
        ("decide_four.twenty_thousand", || {
            count(calls(20_000, 4), decide_all);
        }),
        ("read.twenty_thousand", || {
            count(text(20_000), |text| RuleSet::from_yaml(&text));
        }),
    ]);
}
