//! What a check asks, as JSON: read without copying where it can be.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use tidegate::{Attributes, Timestamp};

use super::problem::Problem;

/// The largest cost: what every JSON reader can hold exactly.
const MAX_COST: u64 = (1 << 53) - 1;

/// The body of `POST /v1/check`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'b: 'de"))]
pub(super) struct Question<'b> {
    #[serde(borrow)]
    attributes: Given<'b>,
    #[serde(default)]
    cost: Cost,
    #[serde(default, borrow)]
    timestamp: Option<&'b RawValue>,
}

/// The body of `POST /v1/check/batch`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch<'b> {
    #[serde(borrow)]
    pub(super) checks: Vec<&'b RawValue>,
}

/// The body of `POST /v1/reset`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'b: 'de"))]
pub(super) struct Reset<'b> {
    #[serde(borrow)]
    pub(super) attributes: Given<'b>,
    #[serde(default, borrow)]
    pub(super) rule: Option<Cow<'b, str>>,
}

impl<'b> Question<'b> {
    /// What is known of the request that is asked about.
    pub(super) fn attributes(self, trust_timestamps: bool) -> Result<Attributes<'b>, Problem> {
        let attributes = self.attributes.0.with_cost(self.cost.0);
        let Some(timestamp) = self.timestamp else {
            return Ok(attributes);
        };
        if !trust_timestamps {
            return Err(Problem::bad_request(
                "`timestamp` is only for servers that run with --trust-timestamps; leave it out",
            ));
        }
        let at = read_timestamp(timestamp.get()).ok_or_else(|| {
            Problem::bad_request("`timestamp` must be Unix seconds with six decimals at the most, from 0 to 9007199254")
        })?;
        Ok(attributes.at(at))
    }
}

/// Attributes as a JSON object of strings.
pub(super) struct Given<'b>(pub(super) Attributes<'b>);

impl<'de> Deserialize<'de> for Given<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GivenVisitor;
        impl<'de> Visitor<'de> for GivenVisitor {
            type Value = Given<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of attributes such as {\"user_id\": \"u1\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut attributes = Attributes::new();
                while let Some(Text(name)) = map.next_key()? {
                    let value = map.next_value_seed(ValueOf(&name))?;
                    attributes.insert(name, value).map_err(A::Error::custom)?;
                }
                Ok(Given(attributes))
            }
        }
        deserializer.deserialize_map(GivenVisitor)
    }
}

/// A string that is borrowed if nothing in it is escaped.
struct Text<'b>(Cow<'b, str>);

impl<'de: 'b, 'b> Deserialize<'de> for Text<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ValueOf("").deserialize(deserializer).map(Text)
    }
}

/// The value of the attribute with this name.
struct ValueOf<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for ValueOf<'_> {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for ValueOf<'_> {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string for the attribute `{}`", self.0)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// How much the request takes.
struct Cost(u64);

impl Default for Cost {
    fn default() -> Self {
        Self(1)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CostVisitor;
        impl Visitor<'_> for CostVisitor {
            type Value = Cost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 0 to {MAX_COST} for `cost`")
            }

            fn visit_u64<E: Error>(self, cost: u64) -> Result<Cost, E> {
                if cost > MAX_COST {
                    return Err(E::invalid_value(
                        serde::de::Unexpected::Unsigned(cost),
                        &self,
                    ));
                }
                Ok(Cost(cost))
            }

            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                clippy::cast_sign_loss,
                reason = "a whole number in range, as was just seen"
            )]
            fn visit_f64<E: Error>(self, cost: f64) -> Result<Cost, E> {
                if cost.fract() != 0.0 || !(0.0..=MAX_COST as f64).contains(&cost) {
                    return Err(E::invalid_value(serde::de::Unexpected::Float(cost), &self));
                }
                Ok(Cost(cost as u64))
            }
        }
        deserializer.deserialize_any(CostVisitor)
    }
}

/// Unix seconds with up to six decimals, exactly.
fn read_timestamp(text: &str) -> Option<Timestamp> {
    let text = if text.contains(['e', 'E']) {
        // Written by a program that prefers this form; exact where a double is.
        &format!("{:.6}", text.parse::<f64>().ok()?)
    } else {
        text
    };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let significant = decimals.trim_end_matches('0');
    if significant.len() > 6 || whole.len() > 10 || whole.starts_with('-') {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{significant:0<6}").parse().ok()?;
    let micros = whole.checked_mul(1_000_000)?.checked_add(fraction)?;
    let at = Timestamp::from_micros(micros);
    (at.as_micros() == micros).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("1794770000.25",       Some(1_794_770_000_250_000)),
            ("1794770000",          Some(1_794_770_000_000_000)),
            ("0.000001",            Some(1)),
            ("0",                   Some(0)),
            ("1.7947700002e9",      Some(1_794_770_000_200_000)),
            ("1794770000.2500000",  Some(1_794_770_000_250_000)),
            ("1794770000.1234567",  None),
            ("-1",                  None),
            ("9007199255",          None),
            ("99999999999",         None),
            ("\"1\"",               None),
            ("null",                None),
            ("1e300",               None),
        ];
        for (text, micros) in table {
            assert_eq!(
                read_timestamp(text).map(Timestamp::as_micros),
                micros,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |body: &str| {
            serde_json::from_str::<Question<'_>>(body)
                .err()
                .unwrap()
                .to_string()
        };
        #[rustfmt::skip]
        let table = [
            (r#"{"attributes": {"user_id": 7}}"#,               "a string for the attribute `user_id`"),
            (r#"{"attributes": {"user_id": null}}"#,            "a string for the attribute `user_id`"),
            (r#"{"attributes": {"ip": "x"}}"#,                  "must be an IPv4 or IPv6 address"),
            (r#"{"attributes": {"path": "/%zz"}}"#,             "attribute `path`"),
            (r#"{"attributes": {"a": "1", "a": "2"}}"#,         "given twice"),
            (r#"{"attributes": []}"#,                           "an object of attributes"),
            (r#"{"atributes": {}}"#,                            "unknown field `atributes`"),
            ("{}",                                           "missing field `attributes`"),
            (r#"{"attributes": {}, "cost": -1}"#,               "a whole number from 0"),
            (r#"{"attributes": {}, "cost": 1.5}"#,              "a whole number from 0"),
            (r#"{"attributes": {}, "cost": "1"}"#,              "a whole number from 0"),
        ];
        for (body, expected) in table {
            let error = error(body);
            assert!(error.contains(expected), "{body}: {error}");
        }
    }
}
