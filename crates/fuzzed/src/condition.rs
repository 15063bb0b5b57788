//! Conditions in CEL: read alike from YAML and JSON, and evaluated alike each time, whatever they say.

use serde_json::json;
use tidegate::document::write_yaml;
use tidegate::rules::FrontEnd;
use tidegate::{Attributes, Gate, MemoryStore};

use crate::rules::{check_problems, read};

/// Reads a condition as part of a rule, and decides requests by it.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let document = json!({"rules": [{"id": "c", "match": {"when": text}, "limit": "1/hour"}]});
    let as_json = document.to_string();
    let rules = read(&as_json);
    let from_yaml = read(&write_yaml(&document));
    assert_eq!(
        rules.is_ok(),
        from_yaml.is_ok(),
        "`{text}` in JSON and in YAML"
    );
    let (rules, again) = match (rules, from_yaml) {
        (Ok(rules), Ok(again)) => (rules, again),
        (Err(problems), _) => return check_problems(&problems, &as_json),
        (Ok(_), Err(_)) => unreachable!("compared above"),
    };
    assert_eq!(rules.to_json(), again.to_json());
    let gates = [rules, again].map(|rules| {
        let store = MemoryStore::builder().max_keys(64).build();
        Gate::new(store, rules)
    });
    for request in requests() {
        let [one, other] = gates.each_ref().map(|gate| {
            let receipt = gate.try_decide_by(&gate.rules(), FrontEnd::Http, &request);
            receipt.ok().map(|receipt| {
                let decision = receipt.decision();
                (decision.is_allowed(), decision.rule().map(str::to_owned))
            })
        });
        assert!(one.is_some(), "a store in memory does not wait");
        assert_eq!(one, other, "`{text}` of {request:?}");
    }
}

fn requests() -> [Attributes<'static>; 3] {
    let pairs: [&[(&str, &str)]; 3] = [
        &[],
        &[("region", "eu"), ("path", "/v1/a"), ("user_id", "42")],
        &[
            ("region", ""),
            ("a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
            ("host", "x.y"),
        ],
    ];
    pairs.map(|pairs| {
        let mut attributes = Attributes::new().with_cost(2);
        for (name, value) in pairs {
            let inserted = attributes.insert(*name, *value);
            assert!(inserted.is_ok(), "{inserted:?}");
        }
        attributes
    })
}
