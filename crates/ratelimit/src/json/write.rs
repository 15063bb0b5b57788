//! Writes a `RateLimitResponse`: names in `camelCase`, fields with their zero value left out.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tidegate_codec::grpc::proto::rate_limit::{
    CurrentLimit, DescriptorStatus, HeaderValue, LimitCode, RateLimitResponse, Unit,
};

use crate::names::code_name;

/// An answer as JSON. Without `quota`, which no answer has.
pub fn write(response: &RateLimitResponse) -> String {
    let mut object = ObjectWriter::new();
    object.put_code("overallCode", response.overall_code);
    object.put_list("statuses", &response.statuses, status);
    object.put_list(
        "responseHeadersToAdd",
        &response.response_headers_to_add,
        header,
    );
    object.put_list(
        "requestHeadersToAdd",
        &response.request_headers_to_add,
        header,
    );
    if !response.raw_body.is_empty() {
        object.put("rawBody", &text(&STANDARD.encode(&response.raw_body)));
    }
    if let Some(metadata) = &response.dynamic_metadata {
        object.put("dynamicMetadata", &structure(metadata));
    }
    object.end()
}

/// An object to which fields are added.
struct ObjectWriter(String);

impl ObjectWriter {
    fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a field, whose value is JSON.
    fn put(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{}:{json}", text(name));
    }

    /// Adds a list that is not empty.
    fn put_list<T>(&mut self, name: &str, items: &[T], item: fn(&T) -> String) {
        if !items.is_empty() {
            let items: Vec<String> = items.iter().map(item).collect();
            self.put(name, &format!("[{}]", items.join(",")));
        }
    }

    fn put_text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.put(name, &text(value));
        }
    }

    fn put_number(&mut self, name: &str, number: u32) {
        if number != 0 {
            self.put(name, &number.to_string());
        }
    }

    /// Adds a code by its name; by its number if it has none.
    fn put_code(&mut self, name: &str, code: i32) {
        match LimitCode::try_from(code) {
            Ok(LimitCode::Unknown) => {}
            Ok(code) => self.put_text(name, code_name(code)),
            Err(_) => self.put(name, &code.to_string()),
        }
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn status(status: &DescriptorStatus) -> String {
    let mut object = ObjectWriter::new();
    object.put_code("code", status.code);
    if let Some(given) = &status.current_limit {
        object.put("currentLimit", &limit(given));
    }
    object.put_number("limitRemaining", status.limit_remaining);
    if let Some(wait) = &status.duration_until_reset {
        let wait = format!("{}{}s", wait.seconds, fraction(wait.nanos));
        object.put("durationUntilReset", &text(&wait));
    }
    object.end()
}

fn limit(limit: &CurrentLimit) -> String {
    let mut object = ObjectWriter::new();
    object.put_number("requestsPerUnit", limit.requests_per_unit);
    match Unit::try_from(limit.unit) {
        Ok(Unit::Unknown) => {}
        Ok(unit) => object.put_text("unit", unit.name()),
        Err(_) => object.put("unit", &limit.unit.to_string()),
    }
    object.put_text("name", &limit.name);
    object.end()
}

fn header(header: &HeaderValue) -> String {
    let mut object = ObjectWriter::new();
    object.put_text("key", &String::from_utf8_lossy(&header.key));
    object.put_text("value", &String::from_utf8_lossy(&header.value));
    if !header.raw_value.is_empty() {
        object.put("rawValue", &text(&STANDARD.encode(&header.raw_value)));
    }
    object.end()
}

/// The fraction of a second, in 0, 3, 6 or 9 digits.
fn fraction(nanos: i32) -> String {
    let nanos = nanos.unsigned_abs();
    if nanos == 0 {
        String::new()
    } else if nanos.is_multiple_of(1_000_000) {
        format!(".{:03}", nanos / 1_000_000)
    } else if nanos.is_multiple_of(1_000) {
        format!(".{:06}", nanos / 1_000)
    } else {
        format!(".{nanos:09}")
    }
}

fn structure(structure: &Struct) -> String {
    let mut object = ObjectWriter::new();
    for (name, value) in &structure.fields {
        object.put(name, &any(value));
    }
    object.end()
}

fn any(value: &Value) -> String {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => "null".to_owned(),
        Some(Kind::NumberValue(number)) => number_text(*number),
        Some(Kind::StringValue(value)) => text(value),
        Some(Kind::BoolValue(value)) => value.to_string(),
        Some(Kind::StructValue(value)) => structure(value),
        Some(Kind::ListValue(list)) => {
            let items: Vec<String> = list.values.iter().map(any).collect();
            format!("[{}]", items.join(","))
        }
    }
}

/// A number without a fraction as digits, as far as it is exact.
fn number_text(number: f64) -> String {
    let is_exact = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
    if is_exact {
        return format!("{number:.0}");
    }
    serde_json::Value::from(number).to_string()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost_types::{Duration, ListValue};

    use super::*;

    #[test]
    fn an_answer_by_hand() {
        let limit = CurrentLimit {
            requests_per_unit: 3,
            unit: Unit::Hour.into(),
            name: "a \"name\"".to_owned(),
        };
        let wait = |seconds, nanos| Some(Duration { seconds, nanos });
        let status = DescriptorStatus {
            code: LimitCode::Ok.into(),
            current_limit: Some(limit),
            limit_remaining: 2,
            duration_until_reset: wait(59, 0),
            quota: None,
        };
        let over = DescriptorStatus {
            code: LimitCode::OverLimit.into(),
            current_limit: Some(CurrentLimit::default()),
            duration_until_reset: wait(1, 500_000_000),
            ..DescriptorStatus::default()
        };
        let response = RateLimitResponse {
            overall_code: LimitCode::OverLimit.into(),
            statuses: vec![status, over],
            ..RateLimitResponse::default()
        };
        let expected = r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":3,"unit":"HOUR","name":"a \"name\""},"limitRemaining":2,"durationUntilReset":"59s"},{"code":"OVER_LIMIT","currentLimit":{},"durationUntilReset":"1.500s"}]}"#;
        assert_eq!(write(&response), expected);
        assert_eq!(write(&RateLimitResponse::default()), "{}");
    }

    #[test]
    fn headers_and_metadata_by_hand() {
        let header = HeaderValue {
            key: Bytes::from_static(b"RateLimit-Limit"),
            value: Bytes::from_static(b"3"),
            raw_value: Bytes::new(),
        };
        let value = |kind| Value { kind: Some(kind) };
        let list = ListValue {
            values: vec![
                value(Kind::NumberValue(3.0)),
                value(Kind::NumberValue(0.5)),
                value(Kind::BoolValue(true)),
                value(Kind::NullValue(0)),
                value(Kind::StringValue("ü".to_owned())),
            ],
        };
        let mut metadata = Struct::default();
        let list = value(Kind::ListValue(list));
        metadata.fields.insert("a".to_owned(), list);
        let response = RateLimitResponse {
            overall_code: LimitCode::Ok.into(),
            response_headers_to_add: vec![header],
            raw_body: Bytes::from_static(b"\xff"),
            dynamic_metadata: Some(metadata),
            ..RateLimitResponse::default()
        };
        let expected = r#"{"overallCode":"OK","responseHeadersToAdd":[{"key":"RateLimit-Limit","value":"3"}],"rawBody":"/w==","dynamicMetadata":{"a":[3,0.5,true,null,"ü"]}}"#;
        assert_eq!(write(&response), expected);
    }
}
