//! YAML as envoyproxy/ratelimit reads it, with the rules of YAML 1.1: merge keys bring in other maps,
//! `yes` is true, `1_000` is a number. A document is rewritten once, so that the reader sees one spelling.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use crate::internal::document::{
    Entry, Kind, Node, Place, Problems, Scalar, ScalarKind, Spot, Value,
};
use crate::rules::keys::{DESCRIPTOR, NO, RATE_LIMIT, YES};

/// Whether a key says yes or no.
fn is_flag(key: &str) -> bool {
    let mut rows = DESCRIPTOR.iter().chain(&RATE_LIMIT);
    rows.any(|row| row.name == key && row.kind.may_be(|kind| matches!(kind, Kind::Flag)))
}

/// The key whose value is a number.
const COUNT: &str = "requests_per_unit";

/// The document with merge keys written out, flags as `true` or `false`, and counts in decimal. Invalid values stay
/// unchanged, for the reader to report.
pub(super) fn rewritten(node: &Node, problems: &mut Problems) -> Node {
    rewritten_under("", node, problems)
}

fn rewritten_under(key: &str, node: &Node, problems: &mut Problems) -> Node {
    let value = match &node.value {
        Value::Map(entries) => Value::Map(merged(entries, problems)),
        Value::List(list) => {
            let items = list.iter();
            Value::List(
                items
                    .map(|item| rewritten_under(key, item, problems))
                    .collect(),
            )
        }
        Value::Scalar(scalar) if scalar.kind == ScalarKind::Plain => Value::Scalar(
            match key {
                COUNT => count(scalar, node, problems),
                _ if is_flag(key) => flag(scalar),
                _ => None,
            }
            .unwrap_or_else(|| scalar.clone()),
        ),
        Value::Scalar(_) | Value::Null => node.value.clone(),
    };
    Node {
        value,
        place: node.place.clone(),
    }
}

/// The entries of a map, including those of its merge keys. The map's own keys win over merged ones; of several merged
/// maps the first wins.
fn merged(entries: &[Entry], problems: &mut Problems) -> Vec<Entry> {
    let is_merge = |entry: &&Entry| entry.key == "<<";
    let own = lasting(entries, problems).into_iter();
    let own = own.filter(|entry| !is_merge(entry));
    let mut all: Vec<Entry> = own
        .map(|entry| Entry {
            value: rewritten_under(&entry.key, &entry.value, problems),
            ..entry.clone()
        })
        .collect();
    let mut names: HashSet<String> = HashSet::new();
    for merge in entries.iter().filter(is_merge) {
        if names.is_empty() {
            names.extend(all.iter().map(|entry| entry.key.clone()));
        }
        let brought = match &merge.value.value {
            Value::List(list) => list.as_slice(),
            _ => std::slice::from_ref(&merge.value),
        };
        for map in brought {
            let Value::Map(entries) = &map.value else {
                let message = format!(
                    "a merge key brings in a map, or a list of maps, such as `<<: *defaults`, not {}",
                    map.kind()
                );
                problems.error(&merge.key_place, &Spot::document(), message);
                continue;
            };
            let new = merged(entries, problems).into_iter();
            all.extend(new.filter(|entry| names.insert(entry.key.clone())));
        }
    }
    all
}

/// The entries of a map without those that a later one replaces.
fn lasting<'e>(entries: &'e [Entry], problems: &mut Problems) -> Vec<&'e Entry> {
    let mut later: HashMap<&str, &Place> = HashMap::with_capacity(entries.len());
    let mut lasting = Vec::with_capacity(entries.len());
    for entry in entries.iter().rev() {
        match later.get(entry.key.as_str()) {
            Some(last) if entry.key != "<<" => {
                let key = &entry.key;
                let line = match last {
                    Place::Text { line, .. } => format!(" in line {line}"),
                    Place::Setting(_) | Place::Nowhere => String::new(),
                };
                let message = format!(
                    "this has no effect, because the key `{key}` is there again{line}, and the last counts, as in envoyproxy/ratelimit; keep one"
                );
                let spot = Spot::document().field(key);
                problems.warning(&entry.key_place, &spot, message);
            }
            _ => {
                later.insert(&entry.key, &entry.key_place);
                lasting.push(entry);
            }
        }
    }
    lasting.reverse();
    lasting
}

/// A plain scalar as a flag, if it is one of the spellings of yes or no.
fn flag(scalar: &Scalar) -> Option<Scalar> {
    let said = yes_or_no(&scalar.text)?;
    Some(Scalar {
        text: said.to_string(),
        kind: ScalarKind::Boolean,
    })
}

/// A plain scalar as a count, in decimal.
fn count(scalar: &Scalar, node: &Node, problems: &mut Problems) -> Option<Scalar> {
    let text = scalar.text.as_str();
    let number = u64::try_from(whole_number(text)?).ok()?;
    if text.parse().is_ok_and(|decimal: u64| decimal != number) {
        let message = format!(
            "YAML takes a number that begins with 0 for an octal one, so this is {number}; write it in decimal"
        );
        let spot = Spot::document().field(COUNT);
        problems.warning(&node.place, &spot, message);
    }
    Some(Scalar {
        text: number.to_string(),
        kind: ScalarKind::Number,
    })
}

/// The words of YAML 1.1.
fn yes_or_no(text: &str) -> Option<bool> {
    let is_no = NO.contains(&text).then_some(false);
    YES.contains(&text).then_some(true).or(is_no)
}

/// A whole number with underscores anywhere, and a prefix for its base.
fn whole_number(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let digits = digits.replace('_', "").to_ascii_lowercase();
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x', ..] => (16, &digits[2..]),
        [b'0', b'o', ..] => (8, &digits[2..]),
        [b'0', b'b', ..] => (2, &digits[2..]),
        [b'0', _, ..] if digits.bytes().all(|byte| (b'0'..b'8').contains(&byte)) => {
            (8, &digits[1..])
        }
        _ => (10, digits.as_str()),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

/// A value with the types that YAML 1.1 gives it.
pub(super) fn typed(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::List(list) => list.iter().map(typed).collect(),
        Value::Map(entries) => {
            let entry = |entry: &Entry| (entry.key.clone(), typed(&entry.value));
            Json::Object(entries.iter().map(entry).collect())
        }
        Value::Scalar(scalar) => {
            let text = scalar.text.as_str();
            let typed = match scalar.kind {
                ScalarKind::Text => None,
                ScalarKind::Plain | ScalarKind::Number | ScalarKind::Boolean => yes_or_no(text)
                    .map(Json::from)
                    .or_else(|| whole_number(text).map(Json::from))
                    .or_else(|| fraction(text).map(Json::from)),
            };
            typed.unwrap_or_else(|| Json::from(text))
        }
    }
}

fn fraction(text: &str) -> Option<f64> {
    let is_number = text.bytes().all(|byte| b"0123456789.eE+-".contains(&byte));
    let number: f64 = is_number.then(|| text.parse().ok())??;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::internal::document::Source;

    fn document(text: &str) -> (Json, Vec<String>) {
        let mut problems = Problems::new();
        let node = Source::new("test.yaml", text).read(&mut problems).unwrap();
        let node = rewritten(&node, &mut problems);
        let messages = problems.iter().map(|problem| problem.message.clone());
        (typed(&node), messages.collect())
    }

    #[test]
    fn numbers_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("0",                       Some(0)),
            ("1_000",                   Some(1_000)),
            ("1__0_",                   Some(10)),
            ("+5",                      Some(5)),
            ("-5",                      Some(-5)),
            ("0x1F",                    Some(31)),
            ("0b11",                    Some(3)),
            ("0o17",                    Some(15)),
            ("010",                     Some(8)),
            ("089",                     Some(89)),
            ("_1",                      None),
            ("0x-1",                    None),
            ("1e3",                     None),
            ("",                        None),
            ("two",                     None),
            ("99999999999999999999",    None),
        ];
        for (text, expected) in table {
            assert_eq!(whole_number(text), expected, "{text}");
        }
    }

    #[test]
    fn values_have_the_types_of_yaml() {
        let text =
            "{a: yes, b: 'yes', c: 1_0, d: 1.5, e: 1e3, f: v1, g: [off, ~], h: .inf, i: '7'}";
        let expected = json!({
            "a": true, "b": "yes", "c": 10, "d": 1.5, "e": 1000.0, "f": "v1", "g": [false, null],
            "h": ".inf", "i": "7",
        });
        assert_eq!(document(text), (expected, vec![]));
    }

    #[test]
    fn a_merge_key_brings_in_what_a_map_does_not_have() {
        let text = "
a: &a {unit: minute, requests_per_unit: 1, name: a}
b: &b {unit: hour, shadow_mode: True}
c: {<<: *a, requests_per_unit: 2}
d: {requests_per_unit: 3, <<: [*b, *a]}
e: &e {<<: *a, unit: day}
f: {<<: *e}
";
        let (read, messages) = document(text);
        assert_eq!(messages, Vec::<String>::new());
        assert_eq!(
            read["c"],
            json!({"unit": "minute", "requests_per_unit": 2, "name": "a"})
        );
        assert_eq!(
            read["d"],
            json!({"unit": "hour", "requests_per_unit": 3, "name": "a", "shadow_mode": true})
        );
        assert_eq!(
            read["f"],
            json!({"unit": "day", "requests_per_unit": 1, "name": "a"})
        );
    }

    #[test]
    fn what_cannot_be_merged_is_reported_and_an_octal_number_is_a_warning() {
        let (_, messages) =
            document("a: {<<: 5}\nb: {<<: [{a: 1}, x]}\nc: {requests_per_unit: 010}");
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert!(messages[2].contains("this is 8"), "{messages:?}");
        let (_, messages) = document("a: {requests_per_unit: 007}");
        assert_eq!(messages, Vec::<String>::new());
    }
}
