//! Reads a `RateLimitRequest`. Names of fields are in both spellings; an unknown field, a field that is there twice and a
//! value of another type are errors. `null` is a field that is not there.

use bytes::Bytes;
use tidegate::document::{Entry, Node, Scalar, ScalarKind, Value};
use tidegate_codec::grpc::proto::rate_limit::{
    DescriptorEntry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, UInt64Value,
};

use super::number::whole;
use crate::names::unit_named;

/// Why a text is not a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonCallError(String);

type JsonRead<T> = Result<T, JsonCallError>;

fn error<T>(message: impl Into<String>) -> JsonRead<T> {
    Err(JsonCallError(message.into()))
}

/// The call in a JSON text.
pub fn read(text: &[u8]) -> JsonRead<RateLimitRequest> {
    let node: Node = match serde_json::from_slice(text) {
        Ok(node) => node,
        Err(problem) => return error(format!("this is not JSON: {problem}")),
    };
    let mut request = RateLimitRequest::default();
    for Entry { key, value, .. } in fields(&node, "the call")? {
        match key.as_str() {
            "domain" => request.domain = text_of(value, key)?,
            "descriptors" => request.descriptors = list(value, key, descriptor)?,
            "hitsAddend" | "hits_addend" => request.hits_addend = short(value, key)?,
            _ => return unknown(key),
        }
    }
    Ok(request)
}

fn descriptor(node: &Node) -> JsonRead<RateLimitDescriptor> {
    let mut descriptor = RateLimitDescriptor::default();
    for Entry { key, value, .. } in fields(node, "a descriptor")? {
        match key.as_str() {
            "entries" => descriptor.entries = list(value, key, entry)?,
            "limit" | "hitsAddend" | "hits_addend" if is_null(value) => {}
            "limit" => descriptor.limit = Some(limit(value)?),
            "hitsAddend" | "hits_addend" => {
                let value = number(value, key, u64::MAX)?;
                descriptor.hits_addend = Some(UInt64Value { value });
            }
            "isNegativeHits" | "is_negative_hits" => {
                descriptor.is_negative_hits = boolean(value, key)?;
            }
            _ => return unknown(key),
        }
    }
    Ok(descriptor)
}

fn entry(node: &Node) -> JsonRead<DescriptorEntry> {
    let mut entry = DescriptorEntry::default();
    for Entry { key, value, .. } in fields(node, "an entry")? {
        match key.as_str() {
            "key" => entry.key = text_of(value, key)?,
            "value" => entry.value = Bytes::from(text_of(value, key)?),
            _ => return unknown(key),
        }
    }
    Ok(entry)
}

fn limit(node: &Node) -> JsonRead<RateLimitOverride> {
    let mut limit = RateLimitOverride::default();
    for Entry { key, value, .. } in fields(node, "a limit")? {
        match key.as_str() {
            "requestsPerUnit" | "requests_per_unit" => {
                limit.requests_per_unit = short(value, key)?;
            }
            "unit" => limit.unit = unit(value)?,
            _ => return unknown(key),
        }
    }
    Ok(limit)
}

/// A unit by its name or its number.
fn unit(node: &Node) -> JsonRead<i32> {
    let (text, unit) = match &node.value {
        Value::Null => return Ok(0),
        Value::Scalar(Scalar { text, kind }) => match kind {
            ScalarKind::Text => (text.as_str(), unit_named(text).map(i32::from)),
            ScalarKind::Number => {
                let number = whole(text, u64::from(i32::MAX.unsigned_abs()));
                let number = number.and_then(|number| i32::try_from(number).ok());
                (text.as_str(), number)
            }
            _ => (text.as_str(), None),
        },
        _ => (node.kind(), None),
    };
    match unit {
        Some(unit) => Ok(unit),
        None => error(format!("`{text}` is not a unit")),
    }
}

/// The fields of an object, each once in whichever spelling.
fn fields<'n>(node: &'n Node, of: &str) -> JsonRead<&'n [Entry]> {
    let Value::Map(entries) = &node.value else {
        return error(format!("{of} must be an object, not {}", node.kind()));
    };
    let spelling = |name: &str| name.replace('_', "").to_ascii_lowercase();
    for (index, Entry { key, .. }) in entries.iter().enumerate() {
        let same = spelling(key);
        if entries[..index]
            .iter()
            .any(|other| spelling(&other.key) == same)
        {
            return error(format!("`{key}` is there twice"));
        }
    }
    Ok(entries)
}

fn unknown<T>(name: &str) -> JsonRead<T> {
    error(format!("the field `{name}` is unknown"))
}

fn is_null(node: &Node) -> bool {
    matches!(node.value, Value::Null)
}

fn list<T>(node: &Node, name: &str, item: fn(&Node) -> JsonRead<T>) -> JsonRead<Vec<T>> {
    match &node.value {
        Value::Null => Ok(Vec::new()),
        Value::List(items) => items.iter().map(item).collect(),
        _ => error(format!("`{name}` must be a list, not {}", node.kind())),
    }
}

fn text_of(node: &Node, name: &str) -> JsonRead<String> {
    match &node.value {
        Value::Null => Ok(String::new()),
        Value::Scalar(Scalar {
            text,
            kind: ScalarKind::Text,
        }) => Ok(text.clone()),
        _ => error(format!("`{name}` must be text, not {}", node.kind())),
    }
}

fn boolean(node: &Node, name: &str) -> JsonRead<bool> {
    match &node.value {
        Value::Null => Ok(false),
        Value::Scalar(Scalar {
            text,
            kind: ScalarKind::Boolean,
        }) => Ok(text == "true"),
        _ => error(format!(
            "`{name}` must be true or false, not {}",
            node.kind()
        )),
    }
}

fn short(node: &Node, name: &str) -> JsonRead<u32> {
    let number = number(node, name, u64::from(u32::MAX))?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// A whole number, as a number or as text.
fn number(node: &Node, name: &str, most: u64) -> JsonRead<u64> {
    let number = match &node.value {
        Value::Null => Some(0),
        Value::Scalar(Scalar {
            text,
            kind: ScalarKind::Number | ScalarKind::Text,
        }) => whole(text, most),
        _ => None,
    };
    match number {
        Some(number) => Ok(number),
        None => error(format!("`{name}` must be a whole number from 0 to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_codec::grpc::proto::rate_limit::Unit;

    use super::*;

    fn refused(text: &str) -> String {
        read(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn both_spellings_and_both_forms_of_numbers_are_read() {
        let camel = r#"{"domain":"web","descriptors":[{"entries":[{"key":"a","value":"\u00fc"}],
            "limit":{"requestsPerUnit":"42","unit":"HOUR"},"hitsAddend":"18446744073709551615",
            "isNegativeHits":true}],"hitsAddend":3.0}"#;
        let snake = r#"{"hits_addend":"3","descriptors":[{"is_negative_hits":true,"hits_addend":18446744073709551615,
            "limit":{"unit":3,"requests_per_unit":42},"entries":[{"value":"ü","key":"a"}]}],"domain":"web"}"#;
        let (camel, snake) = (read(camel.as_bytes()), read(snake.as_bytes()));
        assert_eq!(camel, snake);
        let request = camel.unwrap();
        assert_eq!((request.domain.as_str(), request.hits_addend), ("web", 3));
        let [descriptor] = &request.descriptors[..] else {
            panic!("{request:?}")
        };
        assert_eq!(descriptor.entries[0].value, "ü".as_bytes());
        assert_eq!(descriptor.limit.unwrap().unit, i32::from(Unit::Hour));
        assert_eq!(descriptor.limit.unwrap().requests_per_unit, 42);
        assert_eq!(descriptor.hits_addend.unwrap().value, u64::MAX);
        assert!(descriptor.is_negative_hits);
    }

    #[test]
    fn null_is_a_field_that_is_not_there() {
        let text = r#"{"domain":null,"descriptors":[{"limit":null,"hitsAddend":null,"entries":null}],"hitsAddend":null}"#;
        let expected = RateLimitRequest {
            descriptors: vec![RateLimitDescriptor::default()],
            ..RateLimitRequest::default()
        };
        assert_eq!(read(text.as_bytes()), Ok(expected));
        assert_eq!(read(b"{}"), Ok(RateLimitRequest::default()));
    }

    #[test]
    fn what_is_no_call_is_refused() {
        #[rustfmt::skip]
        let table = [
            ("",                                                    "this is not JSON"),
            ("{",                                                   "this is not JSON"),
            ("{} {}",                                               "this is not JSON"),
            ("[]",                                                  "the call must be an object"),
            (r#"{"domian":"web"}"#,                                 "the field `domian` is unknown"),
            (r#"{"domian":null}"#,                                  "the field `domian` is unknown"),
            (r#"{"Domain":"web"}"#,                                 "the field `Domain` is unknown"),
            (r#"{"domain":"a","domain":"b"}"#,                      "`domain` is there twice"),
            (r#"{"hitsAddend":1,"hits_addend":1}"#,                 "`hits_addend` is there twice"),
            (r#"{"domain":1}"#,                                     "`domain` must be text"),
            (r#"{"descriptors":{}}"#,                               "`descriptors` must be a list"),
            (r#"{"descriptors":[null]}"#,                           "a descriptor must be an object"),
            (r#"{"descriptors":[{"entry":[]}]}"#,                   "the field `entry` is unknown"),
            (r#"{"descriptors":[{"entries":[{"key":1}]}]}"#,        "`key` must be text"),
            (r#"{"hitsAddend":-1}"#,                                "`hitsAddend` must be a whole number from 0 to 4294967295"),
            (r#"{"hitsAddend":4294967296}"#,                        "`hitsAddend` must be a whole number"),
            (r#"{"hitsAddend":1.5}"#,                               "`hitsAddend` must be a whole number"),
            (r#"{"descriptors":[{"limit":{"unit":"hour"}}]}"#,      "`hour` is not a unit"),
            (r#"{"descriptors":[{"limit":{"unit":"3"}}]}"#,         "`3` is not a unit"),
            (r#"{"descriptors":[{"limit":{"unit":true}}]}"#,        "`true` is not a unit"),
            (r#"{"descriptors":[{"isNegativeHits":"true"}]}"#,      "`isNegativeHits` must be true or false"),
        ];
        for (text, expected) in table {
            let refused = refused(text);
            assert!(refused.contains(expected), "{text}: {refused}");
        }
        assert!(read(b"{\"domain\":\"\xff\"}").is_err());
    }

    #[test]
    fn deep_nesting_is_refused() {
        let text = "[".repeat(100_000);
        assert!(refused(&text).contains("this is not JSON"));
    }
}
