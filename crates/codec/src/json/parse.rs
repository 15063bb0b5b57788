//! Parses a body, or a part of one, as a JSON object of a known form.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::CodecError;

/// Parses a body as a JSON object of a known form.
pub fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, CodecError> {
    if let Some(found) = other_than_object(body) {
        let detail = format!("the body must be a JSON object, not {found}");
        return Err(CodecError::invalid(detail));
    }
    serde_json::from_slice(body).map_err(|error| not_json(&error, body))
}

/// Parses a part of a body, such as `checks[0]`, as a JSON object of a known form.
pub fn parse_part<'b, T: Deserialize<'b>>(
    part: &'b RawValue,
    name: impl Fn() -> String,
) -> Result<T, CodecError> {
    if let Some(found) = other_than_object(part.get().as_bytes()) {
        let detail = format!("{} must be a JSON object, not {found}", name());
        return Err(CodecError::invalid(detail));
    }
    serde_json::from_str(part.get())
        .map_err(|error| CodecError::invalid(format!("{} is invalid: {error}", name())))
}

/// The JSON type of a value that is not an object. Derived deserializers would read an array by position.
fn other_than_object(json: &[u8]) -> Option<&'static str> {
    let found = match json.trim_ascii_start().first()? {
        b'{' => return None,
        b'[' => "an array",
        b'"' => "a string",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    };
    // Text that is not JSON gets an error of its own.
    let is_json = serde_json::from_slice::<IgnoredAny>(json).is_ok();
    is_json.then_some(found)
}

fn not_json(error: &serde_json::Error, body: &[u8]) -> CodecError {
    if body.is_empty() {
        return CodecError::invalid("the body is empty; send a JSON object");
    }
    let detail = match error.classify() {
        serde_json::error::Category::Data => format!("the body is invalid: {error}"),
        _ => format!("the body is not valid JSON: {error}"),
    };
    CodecError::invalid(detail)
}
