//! Kept versions of the rules: a file reads as it was written, and a damaged one is noticed.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate::document::Source;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate_server::data_dir::{NewVersion, RulesVersion};
use tidegate_server::fuzzing::{decode_version, encode_version, seal};

/// The number under which files are read.
const NUMBER: u64 = 7;

/// Reads a file, and a file with the right checksum that has the input as its content.
pub fn check(bytes: &[u8]) {
    if let Ok(version) = decode_version(NUMBER, bytes) {
        check_version(&version);
        notices_damage(bytes);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let sealed = seal(text);
    if let Ok(version) = decode_version(NUMBER, &sealed) {
        check_version(&version);
        notices_damage(&sealed);
    }
}

fn check_version(version: &RulesVersion) {
    assert_eq!(version.version, NUMBER);
    let new = NewVersion {
        at: version.at,
        by: version.by.clone(),
        changes: version.changes.clone(),
        rules: Arc::clone(&version.rules),
        shared: version.shared,
    };
    let Ok(text) = encode_version(NUMBER, &new) else {
        unreachable!("{new:?} cannot be written");
    };
    match decode_version(NUMBER, &text) {
        Ok(again) => assert_eq!(exact(again), exact(version.clone())),
        Err(error) => unreachable!("{error}: {}", text.escape_ascii()),
    }
    let rules = json!({ "rules": &*version.rules }).to_string();
    let settings = RuleSettings::default();
    if let Err(problems) = RuleSet::read(&Source::new("kept", rules), &settings) {
        assert!(problems.has_errors(), "rules are refused without an error");
    }
}

/// Without numbers that `serde_json` does not read exactly; no rule has one.
fn exact(version: RulesVersion) -> RulesVersion {
    fn round(value: &mut Value) {
        match value {
            Value::Number(number) if number.is_f64() => *value = Value::Null,
            Value::Array(items) => items.iter_mut().for_each(round),
            Value::Object(map) => map.values_mut().for_each(round),
            _ => {}
        }
    }
    let mut rules = (*version.rules).clone();
    round(&mut rules);
    RulesVersion {
        rules: Arc::new(rules),
        ..version
    }
}

/// One changed bit, and a missing end.
fn notices_damage(text: &[u8]) {
    let step = (text.len() / 16).max(1);
    for index in (0..text.len()).step_by(step) {
        assert!(
            decode_version(NUMBER, &text[..index]).is_err(),
            "cut at {index}"
        );
        let mut damaged = text.to_vec();
        damaged[index] ^= 1 << (index % 8);
        assert!(decode_version(NUMBER, &damaged).is_err(), "byte {index}");
    }
}
