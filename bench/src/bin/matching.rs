//! Time of a decision with ten rules and with a thousand, in turns, in one process.
//!
//! In each case one rule is about the request, and one is about every request. The turns are short
//! and the two alternate, so that what the machine does meanwhile hits both alike. Printed: the
//! median turn of each, and the median of their ratios turn by turn.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use tidegate::rules::RuleSet;
use tidegate::{Attributes, Gate, MemoryStore};
use tidegate_bench::{block_on, median};

const TURNS: usize = 41;
const DECISIONS: usize = 20_000;
const FEW: usize = 10;
const MANY: usize = 1_000;
/// What a thousand rules may cost, in times of ten.
const ALLOWED: f64 = 2.0;

/// How the rules differ, and what each of them matches.
type Case = (&'static str, fn(usize) -> String);

const CASES: [Case; 3] = [
    ("path", |n| format!("path: /svc{n}/**")),
    ("attribute", |n| {
        format!("path: /svc7/**, attributes: {{tenant: t{n}}}")
    }),
    ("host", |n| {
        format!("path: /svc7/**, method: GET, host: h{n}.example.com")
    }),
];

fn main() -> ExitCode {
    println!("ns per decision, median of {TURNS} interleaved turns of {DECISIONS} decisions");
    println!(
        "{:<16}{:>12}{:>12}{:>10}",
        "rules differ by", "10 rules", "1000 rules", "ratio"
    );
    let mut is_met = true;
    for (name, matching) in CASES {
        let [few, many] = [FEW, MANY].map(|count| gate(count, matching));
        let (mut few_turns, mut many_turns) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            few_turns.push(turn(&few));
            many_turns.push(turn(&many));
        }
        let pairs = many_turns.iter().zip(&few_turns);
        let ratio = median(pairs.map(|(many, few)| many / few).collect());
        println!(
            "{name:<16}{:>12.1}{:>12.1}{ratio:>10.2}",
            median(few_turns),
            median(many_turns)
        );
        is_met &= ratio <= ALLOWED;
    }
    if is_met {
        return ExitCode::SUCCESS;
    }
    eprintln!("a thousand rules cost more than {ALLOWED} times what ten do");
    ExitCode::FAILURE
}

fn gate(count: usize, matching: fn(usize) -> String) -> Gate<MemoryStore> {
    let limit = "per: [user_id], missing: deny, limit: 1000/day burst 100000000";
    let mut text = format!("rules:\n- {{id: all, {limit}}}\n");
    for number in 0..count {
        let matching = matching(number);
        text.push_str(&format!(
            "- {{id: r{number}, match: {{{matching}}}, {limit}}}\n"
        ));
    }
    let rules = RuleSet::from_yaml(&text).unwrap_or_else(|problems| panic!("{problems}"));
    Gate::new(MemoryStore::new(), rules)
}

/// Nanoseconds for one decision, the making of its attributes counted.
fn turn(gate: &Gate<MemoryStore>) -> f64 {
    let started = Instant::now();
    for _ in 0..DECISIONS {
        let decision = block_on(gate.decide(black_box(&request())));
        assert_eq!(decision.limits().len(), 2, "one rule and the one for all");
        black_box(decision);
    }
    started.elapsed().as_nanos() as f64 / DECISIONS as f64
}

fn request() -> Attributes<'static> {
    let mut attributes = Attributes::new();
    for (name, value) in [
        ("path", "/svc7/users/42"),
        ("method", "GET"),
        ("host", "h7.example.com"),
        ("tenant", "t7"),
        ("user_id", "u1"),
        ("ip", "203.0.113.7"),
    ] {
        attributes
            .insert(name, value)
            .expect("attributes that are sound");
    }
    attributes
}
