//! A recording has all that is needed to make its decisions again.

use serde_json::{Value, json};
use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{Attributes, Gate, MemoryStore, Timestamp};
use tidegate_testkit_server::TestFolder;

use super::{lines_of, recorded_limits, serve};

const RULES: &str = "rules:
- {id: bucket, per: [user_id], limit: 20/second burst 5}
- {id: log, per: [user_id], limit: 30/second, algorithm: sliding_window_log, mode: shadow}
- {id: slots, match: {path: /a}, per: [], limit: 40/second, algorithm: sliding_window_slots}
- {id: fixed, per: [tier], limit: 50/minute; 90/hour, tiers: {pro: 70/minute}, algorithm: fixed_window}
";

#[test]
fn the_same_decisions_are_made_again_from_the_lines() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = serve(&folder, "record: FOLDER/r", &["--rules", "rules.yaml"]);
    let mut client = server.client();
    let mut answers = Vec::new();
    for number in 0..300 {
        let user = format!("u{}", number % 3);
        let (path, tier) = (["/a", "/b"][number % 2], ["free", "pro"][number % 3 % 2]);
        let attributes = json!({"user_id": user, "path": path, "tier": tier});
        let body = json!({"attributes": attributes, "cost": 1 + number % 2}).to_string();
        answers.push(client.ask("POST /v1/check", &body).json());
    }
    server.stop();

    let gate = Gate::new(MemoryStore::new(), RuleSet::from_yaml(RULES).unwrap());
    let lines = lines_of(&folder, "r");
    assert_eq!(lines.len(), 301);
    let denied = answers.iter().filter(|answer| answer["allowed"] == false);
    assert!(denied.count() > 50);
    for (line, answer) in lines[1..].iter().zip(&answers) {
        assert_eq!(line["limits"], recorded_limits(answer));
        let decided = decide(&gate, line);
        assert_eq!(&decided, line, "made again");
    }
}

/// The line with what a gate decides about it.
fn decide(gate: &Gate, line: &Value) -> Value {
    let mut attributes = Attributes::new().with_cost(line["cost"].as_u64().unwrap());
    for (name, value) in line["attributes"].as_object().unwrap() {
        let inserted = attributes.insert(name.as_str(), value.as_str().unwrap());
        inserted.unwrap();
    }
    // As text, exact to the microsecond.
    let at = line["t"].to_string().parse::<f64>().unwrap() * 1e6;
    let at = Timestamp::from_micros(format!("{at:.0}").parse().unwrap());
    let decided = gate.try_decide_by(&gate.rules(), FrontEnd::Http, &attributes.at(at));
    let decision = decided.unwrap().into_decision();
    let limits = decision.limits().map(|limit| {
        let mut kept = json!({"rule": limit.rule.id(), "allowed": limit.outcome.allowed});
        if limit.is_shadow {
            kept["shadow"] = json!(true);
        }
        kept
    });
    let mut made = line.clone();
    made["limits"] = limits.collect();
    made["allowed"] = json!(decision.is_allowed());
    made["rule"] = json!(decision.rule());
    made["reason"] = json!(decision.reason().map(tidegate::Reason::name));
    made
}
