//! The fields of a protobuf message whose type is not known here.

use std::str::FromStr;

use prost::encoding::{WireType, encode_key, encode_varint};

use crate::error::LoadRunError;
use crate::template::KeyTemplate;

/// The highest number of a field.
const MAX_FIELD: u32 = (1 << 29) - 1;

/// A field: its number, and a text or a whole number.
///
/// Written as `NUMBER=TEXT`, in which `{key}` is replaced, or `NUMBER:=INTEGER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageField {
    number: u32,
    value: FieldValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldValue {
    Text(KeyTemplate),
    Integer(u64),
}

impl FromStr for MessageField {
    type Err = LoadRunError;

    fn from_str(text: &str) -> Result<Self, LoadRunError> {
        let invalid = || {
            LoadRunError::Invalid(format!(
                "`{text}` is not a field; write NUMBER=TEXT or NUMBER:=INTEGER, such as `1=user_{{key}}`"
            ))
        };
        let (number, value) = text.split_once('=').ok_or_else(invalid)?;
        let (number, value) = match number.strip_suffix(':') {
            Some(number) => {
                let integer = value.parse().map_err(|_| invalid())?;
                (number, FieldValue::Integer(integer))
            }
            None => (number, FieldValue::Text(KeyTemplate::new(value))),
        };
        let number = number.parse().map_err(|_| invalid())?;
        if !(1..=MAX_FIELD).contains(&number) {
            return Err(invalid());
        }
        Ok(Self { number, value })
    }
}

/// The message with these fields, for a key.
pub(super) fn write_fields(fields: &[MessageField], key: u64) -> Vec<u8> {
    let mut message = Vec::new();
    for field in fields {
        match &field.value {
            FieldValue::Integer(integer) => {
                encode_key(field.number, WireType::Varint, &mut message);
                encode_varint(*integer, &mut message);
            }
            FieldValue::Text(template) => {
                let text = template.fill(key);
                encode_key(field.number, WireType::LengthDelimited, &mut message);
                encode_varint(text.len() as u64, &mut message);
                message.extend_from_slice(text.as_bytes());
            }
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_protobuf_does() {
        let fields: Vec<MessageField> = ["1=u{key}", "2:=300"]
            .map(|text| text.parse().unwrap())
            .into();
        // Field 1 of wire type 2 with three bytes, field 2 of wire type 0 with 300 in two groups of seven bits.
        let message = write_fields(&fields, 42);
        assert_eq!(message, [0x0a, 3, b'u', b'4', b'2', 0x10, 0xac, 0x02]);
    }

    #[test]
    fn a_field_that_cannot_be_sent_is_refused() {
        for text in ["", "x", "=a", "0=a", "a=b", "1:=x", "1:=-1", "536870912=a"] {
            assert!(text.parse::<MessageField>().is_err(), "{text}");
        }
    }
}
