//! What is written is read back as the same, by the reader of rule files.

use crate::internal::document::{Node, Problems, ScalarKind, Source, Value as Read};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(text: &str) -> Node {
    let source = Source::new("written.yaml", text);
    let mut problems = Problems::new();
    let node = source.read(&mut problems);
    assert!(problems.is_empty(), "{}\n{text}", problems.render(&source));
    node.unwrap()
}

/// Whether a tree says what a value says. Text without quotes must not look like a number.
fn is_same(value: &Value, node: &Node) -> bool {
    match (value, &node.value) {
        (Value::Null, Read::Null) => true,
        (Value::String(text), Read::Scalar(scalar)) => {
            let is_text = scalar.kind == ScalarKind::Text
                || serde_json::from_str::<Value>(&scalar.text).is_err();
            is_text && scalar.text == *text
        }
        (Value::Bool(_) | Value::Number(_), Read::Scalar(scalar)) => {
            let written = value.to_string();
            scalar.kind == ScalarKind::Plain && scalar.text == written
        }
        (Value::Array(list), Read::List(nodes)) => {
            let mut pairs = list.iter().zip(nodes);
            list.len() == nodes.len() && pairs.all(|(item, node)| is_same(item, node))
        }
        (Value::Object(map), Read::Map(entries)) => {
            let mut pairs = map.iter().zip(entries);
            map.len() == entries.len()
                && pairs
                    .all(|((key, value), entry)| *key == entry.key && is_same(value, &entry.value))
        }
        _ => false,
    }
}

fn check(value: &Value) {
    let text = write_yaml(value);
    assert!(is_same(value, &read(&text)), "{value}\n{text}");
}

#[test]
fn a_rule_reads_as_people_write_it() {
    let rule = json!({
        "id": "per-user",
        "description": "two lines,\nof which\n\n  one is indented",
        "match": {
            "path": ["/v1/**", "/login"],
            "host": ["*.example.org"],
            "ip": ["10.0.0.0/8", "2001:db8::/32"],
            "attributes": {"plan": ["free", "007"], "header.x-beta": ["yes"]},
            "when": "attributes[\"region\"] == \"eu\" && cost > 1",
        },
        "per": [],
        "limit": "10/minute burst 3; 2/second",
        "overrides": {"1e3": "blocked", "a: b": "unlimited", "it's": "1/day", "": "x"},
        "cost": 2,
        "shape": false,
        "expires_at": "2027-01-01T00:00:00Z",
    });
    check(&rule);
    insta::assert_snapshot!(write_yaml(
        &json!({"rules": [rule, {"id": "b", "per": ["ip"]}]})
    ));
}

#[test]
fn what_would_be_read_as_something_else_is_quoted() {
    let table = [
        ("", "''"),
        ("plain text", "plain text"),
        ("null", "'null'"),
        ("~", "'~'"),
        ("Yes", "'Yes'"),
        ("1_000", "'1_000'"),
        ("0x1f", "'0x1f'"),
        (".5", "'.5'"),
        ("1:30", "'1:30'"),
        ("10.0.0.1", "10.0.0.1"),
        ("100/minute", "100/minute"),
        ("::1", "'::1'"),
        ("a:b", "a:b"),
        ("a: b", "'a: b'"),
        ("a #b", "'a #b'"),
        ("a#b", "a#b"),
        ("it's", "it's"),
        ("'it'", "'''it'''"),
        (" x", "' x'"),
        ("---", "'---'"),
        ("\u{1b}[1m", "\"\\U0000001B[1m\""),
        ("a\u{2028}b", "\"a\\U00002028b\""),
        ("über", "über"),
    ];
    for (text, expected) in table {
        assert_eq!(quoted(text), expected);
        check(&json!(text));
        check(&json!([text, text]));
        check(&json!({ text: text }));
    }
}

#[test]
fn long_and_nested_values_stay_whole() {
    check(&json!({"a".repeat(2_000): "b", "c".repeat(1_500): ["d".repeat(3_000)]}));
    check(&json!({"list": vec!["some-longer-value"; 40]}));
    check(&json!([[["a", "b"], [], {}], [[["c\nd"]]], {"e": [[{"f": {}}]]}]));
    check(&json!([["a\nb"], "c\nd\n", {"e": "f\n\n"}]));
}

/// Text that is often near the edge.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[-a:#?&*!|>'\"%@`,\\[\\]{} \n0-9._~=<+]{0,12}",
        "[ab\n ]{0,8}",
        "(yes|no|0x|1e|null|---|\\.\\.\\.)[ :\n0-9]{0,3}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let map = proptest::collection::vec((text(), inner.clone()), 0..5);
        prop_oneof![
            proptest::collection::vec(inner, 0..5).prop_map(Value::from),
            map.prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn what_is_written_reads_as_the_same(value in value()) {
        let text = write_yaml(&value);
        prop_assert!(is_same(&value, &read(&text)), "{value}\n{text}");
    }
}
