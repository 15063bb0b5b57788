//! Descriptor files of envoyproxy/ratelimit: read or refused as a whole, twice alike, and decided.

use serde_json::Value;
use tidegate::document::write_yaml;
use tidegate::gate::Part;
use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{Attributes, Gate, MemoryStore};

use crate::rules::{check_problems, read};

/// How many keys the store of a check holds.
const KEYS: usize = 1_024;

/// Reads a file as descriptors, also where it does not say that it is one.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    check_text(text);
    if !text.starts_with("domain:") {
        check_text(&format!("domain: edge\ndescriptors:\n{text}"));
    }
}

/// The form that the API shows reads as the same limits.
fn reads_as_written(rules: &RuleSet) {
    let documents = rules.descriptors().and_then(Value::as_array);
    let documents: Vec<String> = documents.into_iter().flatten().map(write_yaml).collect();
    let text = documents.join("\n---\n");
    match read(&text) {
        Ok(again) => assert_eq!(again.to_json(), rules.to_json(), "{text}"),
        Err(problems) => unreachable!("{problems}: {text}"),
    }
}

fn check_text(text: &str) {
    let rules = match read(text) {
        Ok(rules) => rules,
        Err(problems) => {
            assert!(problems.has_errors(), "rules are refused without an error");
            check_problems(&problems, text);
            return;
        }
    };
    check_problems(rules.warnings(), text);
    if !rules.is_by_descriptors() {
        return;
    }
    let Ok(again) = read(text) else {
        unreachable!("the same text is refused");
    };
    assert_eq!(again.to_json(), rules.to_json());
    assert_eq!(again.descriptors(), rules.descriptors());
    reads_as_written(&rules);
    let mut ids: Vec<&str> = rules.iter().map(|rule| rule.id()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "each limit has an id of its own");

    let entries: [&[(&str, &str)]; 3] = [
        &[],
        &[("generic_key", "slow")],
        &[("remote_address", "203.0.113.7"), ("path", "/v1/a")],
    ];
    let part = |entries: &&[(&'static str, &'static str)]| {
        let mut attributes = Attributes::new();
        attributes.push("domain", "edge");
        for (key, value) in *entries {
            attributes.push(*key, *value);
        }
        Part::new(attributes)
    };
    let parts: Vec<Part<'_>> = entries.iter().map(part).collect();
    let gate = Gate::new(MemoryStore::builder().max_keys(KEYS).build(), rules);
    let decided = gate.try_decide_by(&gate.rules(), FrontEnd::Grpc, &parts[..]);
    let Ok(receipt) = decided else {
        unreachable!("a store in memory does not wait");
    };
    assert_eq!(receipt.decisions().iter().count(), parts.len());
}
