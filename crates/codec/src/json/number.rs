//! Whole numbers in bodies, paths and queries. To JSON, `3` and `3.0` are the same number.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate::printable::escaped;

use crate::CodecError;

/// The largest number that every JSON reader holds exactly.
pub(crate) const MAX: u64 = (1 << 53) - 1;

/// Reads the value of `name` as a whole number.
pub fn whole<'de, D: Deserializer<'de>>(
    deserializer: D,
    name: &'static str,
) -> Result<u64, D::Error> {
    deserializer.deserialize_any(Whole(name))
}

/// Like [`whole`], for a value that must not become 0 because a double cannot hold it, such as `1e-400`.
pub fn whole_exactly<'de, D: Deserializer<'de>>(
    deserializer: D,
    name: &'static str,
) -> Result<u64, D::Error> {
    let text = <&RawValue>::deserialize(deserializer)?.get();
    let expected = Whole(name);
    let unlike = match serde_json::from_str(text).unwrap_or_default() {
        Value::Number(number) => {
            if let Some(number) = number.as_u64() {
                return expected.visit_u64(number);
            }
            let digits = text.split(['e', 'E']).next().unwrap_or_default();
            let is_zero = !digits.contains(|digit| matches!(digit, '1'..='9'));
            match number.as_f64() {
                Some(number) if number != 0.0 || is_zero => return expected.visit_f64(number),
                _ => Unexpected::Other(text),
            }
        }
        Value::String(_) => Unexpected::Other(text),
        Value::Bool(is_true) => Unexpected::Bool(is_true),
        Value::Null => Unexpected::Unit,
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    };
    Err(D::Error::invalid_type(unlike, &expected))
}

/// Reads the text of a parameter as a whole number.
pub fn parse_whole(name: &str, text: &str) -> Result<u64, CodecError> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| *number <= MAX);
    number.filter(|_| is_digits).ok_or_else(|| {
        let text: String = escaped(text).chars().take(64).collect();
        let detail = format!("`{name}` must be a whole number from 0 to {MAX}, not `{text}`");
        CodecError::invalid(detail)
    })
}

struct Whole(&'static str);

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {MAX} for `{}`", self.0)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        if number > MAX {
            return Err(E::invalid_value(Unexpected::Unsigned(number), &self));
        }
        Ok(number)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a whole number in range, as checked above"
    )]
    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        if number.fract() != 0.0 || !(0.0..=MAX as f64).contains(&number) {
            return Err(E::invalid_value(Unexpected::Float(number), &self));
        }
        Ok(number as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_digits_only() {
        let max = MAX.to_string();
        let table = [("0", Some(0)), ("007", Some(7)), (max.as_str(), Some(MAX))];
        for (text, number) in table {
            assert_eq!(parse_whole("from", text).ok(), number, "{text}");
        }
        for text in ["", "+1", "-1", "1.0", " 1", "1e3", "9007199254740992", "x"] {
            assert!(parse_whole("from", text).is_err(), "{text}");
        }
    }

    #[test]
    fn whole_numbers_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("0",                   Some(0)),
            ("254",                 Some(254)),
            ("254.0",               Some(254)),
            ("-0.0",                Some(0)),
            ("2e3",                 Some(2_000)),
            ("9007199254740991",    Some(MAX)),
            ("9007199254740992",    None),
            ("9007199254740992.0",  None),
            ("0.5",                 None),
            ("-1",                  None),
            ("\"1\"",               None),
            ("null",                None),
            ("true",                None),
        ];
        for (text, number) in table {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            assert_eq!(whole(&mut deserializer, "version").ok(), number, "{text}");
            let mut deserializer = serde_json::Deserializer::from_str(text);
            let exactly = whole_exactly(&mut deserializer, "cost");
            assert_eq!(exactly.ok(), number, "{text}");
        }
    }

    #[test]
    fn a_number_that_is_too_small_for_a_double_is_not_zero() {
        for text in ["1e-400", "0.1E-999", "-1e-400"] {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            let error = whole_exactly(&mut deserializer, "cost").unwrap_err();
            assert!(
                error.to_string().contains("a whole number from 0"),
                "{error}"
            );
        }
        for text in ["0e-400", "0.000", "-0"] {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            assert_eq!(
                whole_exactly(&mut deserializer, "cost").ok(),
                Some(0),
                "{text}"
            );
        }
    }
}
