//! Costs by unit in recordings are charged as they were, and written down again.

use serde_json::{Value, json};
use tidegate_rehearse::{InputSettings, to_json};

use crate::support::{SharedText, log, run, settings};

const RULES: &str = "rules:
- {id: requests, per: [user_id], limit: 100/hour}
- {id: tokens, per: [user_id], unit: tokens, limit: 100/hour}
";

#[test]
fn each_unit_is_charged_its_own_cost() {
    let header = json!({"tidegate_record": 1, "version": "0", "rules_version": null, "attributes": null,
        "secret": [], "sample": 1, "sample_by": null});
    let mut text = format!("{header}\n");
    for (second, costs) in [
        json!({"tokens": 60}),
        json!({"tokens": 60}),
        json!({"tokens": 40, "requests": 5}),
        json!({"tokens": -1}),
        json!({"Tokens": 1}),
    ]
    .into_iter()
    .enumerate()
    {
        let line = json!({"t": 1_794_770_000 + second, "front_end": "http", "attributes": {"user_id": "u1"},
            "costs": costs, "allowed": true, "rule": null, "reason": null, "limits": []});
        text.push_str(&format!("{line}\n"));
    }
    let mut settings = settings(RULES, InputSettings::default());
    let written = SharedText::default();
    settings.record = Some(Box::new(written.clone()));
    let report = to_json(&run(&[log("log", text)], settings).unwrap(), None);
    assert_eq!(report["input"]["malformed"], 2);
    let rule = |index: usize| {
        let rule = &report["rules"][index];
        ["allowed", "denied", "cost"].map(|name| rule[name].clone())
    };
    assert_eq!(rule(0), [3, 0, 6].map(|n| json!(n)));
    assert_eq!(rule(1), [2, 1, 100].map(|n| json!(n)));
    let recorded: Vec<Value> = written.lines()[1..]
        .iter()
        .map(|line| line["costs"].clone())
        .collect();
    let tokens = json!({"tokens": 60});
    assert_eq!(
        recorded,
        [tokens.clone(), tokens, json!({"requests": 5, "tokens": 40})]
    );
}
