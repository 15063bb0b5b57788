//! What the recorded counts of instructions promise.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// A call of Envoy among 20,000 routes takes at most twice the instructions of one among 10.
#[test]
fn a_call_among_many_routes_costs_little_more_than_among_few() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../instructions/instructions.json");
    let recorded: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let count = |name: &str| recorded["instructions"][name].as_u64().unwrap();
    for calls in ["decide", "decide_four"] {
        let [few, many] =
            ["ten", "twenty_thousand"].map(|end| count(&format!("routes/{calls}.{end}")));
        assert!(many <= 2 * few, "{calls}: {many} and {few}");
    }
}
