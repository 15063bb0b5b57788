//! What the recorded counts of instructions promise.

#![expect(clippy::expect_used, reason = "a test may")]

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The recorded counts, by the names of the benchmarks.
fn recorded() -> impl Fn(&str) -> u64 {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../instructions/instructions.json");
    let text = fs::read_to_string(file).expect("the file with the counts");
    let recorded: Value = serde_json::from_str(&text).expect("JSON");
    move |name| recorded["instructions"][name].as_u64().expect(name)
}

/// A call of Envoy among 20,000 routes takes at most twice the instructions of one among 10.
#[test]
fn a_call_among_many_routes_costs_little_more_than_among_few() {
    let count = recorded();
    for calls in ["decide", "decide_four"] {
        let [few, many] =
            ["ten", "twenty_thousand"].map(|end| count(&format!("routes/{calls}.{end}")));
        assert!(many <= 2 * few, "{calls}: {many} and {few}");
    }
}

#[test]
fn to_reserve_and_settle_takes_at_most_two_and_a_half_times_a_decision() {
    let count = recorded();
    let reserved = count("library/reserve_and_settle.one_rule");
    let decided = count("library/decide.one_rule");
    assert!(
        2 * reserved <= 5 * decided,
        "{reserved} instructions to reserve and settle, {decided} to decide"
    );
}
