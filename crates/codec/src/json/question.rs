//! The bodies of checks and resets, parsed from JSON without copying where possible.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use tidegate::{AttributeError, Attributes, MAX_ATTRIBUTES, Micros, Timestamp};

use super::costs::{JsonCosts, cost, costs_of};
use super::plain;
use crate::CodecError;

/// How long a reservation lasts if its caller does not say.
pub(crate) const DEFAULT_TTL: Micros = Micros::from_seconds(300);
/// The longest that a reservation may last, and the longest from one extension to the next.
const LONGEST_TTL: Micros = Micros::DAY;

/// The body of `POST /v1/check`, and with `ttl` that of `POST /v1/reserve`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'b: 'de"))]
pub struct CheckRequest<'b> {
    #[serde(borrow)]
    attributes: JsonAttributes<'b>,
    #[serde(default, deserialize_with = "cost")]
    cost: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    costs: Option<JsonCosts>,
    #[serde(default, borrow, deserialize_with = "given")]
    ttl: Option<&'b RawValue>,
    #[serde(default, borrow)]
    timestamp: Option<&'b RawValue>,
}

/// The body of `POST /v1/check/batch`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch<'b> {
    /// The checks, each the body of a single one.
    #[serde(borrow)]
    pub checks: Vec<&'b RawValue>,
}

/// The body of `POST /v1/reset`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'b: 'de"))]
pub struct ResetRequest<'b> {
    /// The attributes of the client whose usage is cleared.
    #[serde(default, borrow, deserialize_with = "given")]
    pub attributes: Option<JsonAttributes<'b>>,
    /// The client itself: the value of an attribute that a rule counts by, or its digest.
    #[serde(default, borrow, deserialize_with = "given")]
    pub client: Option<Cow<'b, str>>,
    /// Only the counters of this rule.
    #[serde(default, borrow)]
    pub rule: Option<Cow<'b, str>>,
}

/// A value that may be left out and not be `null`.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl<'b> CheckRequest<'b> {
    /// Parses a body.
    pub fn parse(body: &'b [u8]) -> Result<Self, CodecError> {
        let mut plain = Self {
            attributes: JsonAttributes(Attributes::new()),
            cost: None,
            costs: None,
            ttl: None,
            timestamp: None,
        };
        match plain::read(body, &mut plain.attributes.0) {
            Some(()) => Ok(plain),
            None => super::parse(body),
        }
    }

    /// The attributes of the request.
    pub fn attributes(mut self, trust_timestamps: bool) -> Result<Attributes<'b>, CodecError> {
        if self.ttl.is_some() {
            return Err(CodecError::invalid(
                "`ttl` goes with `POST /v1/reserve`; leave it out",
            ));
        }
        self.complete(trust_timestamps)?;
        Ok(self.attributes.0)
    }

    /// The request, with its estimate, and how long the reservation lasts.
    pub fn reservation(
        mut self,
        trust_timestamps: bool,
    ) -> Result<(Attributes<'b>, Micros), CodecError> {
        let ttl = self.ttl.map_or(Ok(DEFAULT_TTL), read_ttl)?;
        self.complete(trust_timestamps)?;
        if self.attributes.0.costs().is_zero() {
            return Err(CodecError::invalid(
                "a reservation needs a cost above 0; to ask without taking, use `POST /v1/check`",
            ));
        }
        Ok((self.attributes.0, ttl))
    }

    /// Adds to the attributes what else the body says of the request. A plain body has said it already.
    #[inline]
    fn complete(&mut self, trust_timestamps: bool) -> Result<(), CodecError> {
        if self.cost.is_some() || self.costs.is_some() {
            let costs = costs_of(self.cost, self.costs.take())?;
            self.attributes.0.set_cost(costs);
        }
        if let Some(at) = time(self.timestamp, trust_timestamps)? {
            self.attributes.0.set_time(at);
        }
        Ok(())
    }
}

/// Seconds, to the microsecond.
pub(super) fn read_ttl(given: &RawValue) -> Result<Micros, CodecError> {
    let span = read_timestamp(given.get()).map(|end| end.since(Timestamp::EPOCH));
    checked_ttl(span).ok_or_else(|| CodecError::invalid("`ttl` must be 1 to 86400 seconds"))
}

/// A time to live that a reservation may have.
pub(crate) fn checked_ttl(span: Option<Micros>) -> Option<Micros> {
    span.filter(|span| (Micros::SECOND..=LONGEST_TTL).contains(span))
}

/// The time that a caller gives, if it may.
pub(super) fn time(
    given: Option<&RawValue>,
    trust_timestamps: bool,
) -> Result<Option<Timestamp>, CodecError> {
    let Some(timestamp) = given else {
        return Ok(None);
    };
    if !trust_timestamps {
        return Err(CodecError::invalid(
            "`timestamp` needs a server that runs with --trust-timestamps; leave it out",
        ));
    }
    let at = read_timestamp(timestamp.get()).ok_or_else(|| {
        CodecError::invalid("`timestamp` must be Unix seconds from 0 to 9007199254.740991")
    })?;
    Ok(Some(at))
}

/// Attributes as a JSON object of strings.
pub struct JsonAttributes<'b>(
    /// In their normal form.
    pub Attributes<'b>,
);

impl<'de> Deserialize<'de> for JsonAttributes<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GivenVisitor;
        impl<'de> Visitor<'de> for GivenVisitor {
            type Value = JsonAttributes<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of attributes such as {\"user_id\": \"u1\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut attributes = Attributes::new();
                let mut given = 0;
                while let Some(JsonText(name)) = map.next_key()? {
                    // Empty values are dropped, but count as attributes.
                    given += 1;
                    if given > MAX_ATTRIBUTES {
                        return Err(A::Error::custom(AttributeError::TooMany));
                    }
                    let value = map.next_value_seed(ValueOf(&name))?;
                    attributes.insert(name, value).map_err(A::Error::custom)?;
                }
                Ok(JsonAttributes(attributes))
            }
        }
        deserializer.deserialize_map(GivenVisitor)
    }
}

/// A string, borrowed if it has no escapes.
struct JsonText<'b>(Cow<'b, str>);

impl<'de: 'b, 'b> Deserialize<'de> for JsonText<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ValueOf("").deserialize(deserializer).map(JsonText)
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

/// Unix seconds, exact; fractions of a microsecond are cut off, whichever notation the number has.
pub fn read_timestamp(text: &str) -> Option<Timestamp> {
    let number: f64 = text.parse().ok()?;
    if number < 0.0 {
        return None;
    }
    // In JSON, minus zero is zero.
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, decimals].concat();
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some(Timestamp::EPOCH);
    }
    // How many significant digits precede the point, and how many down to the microsecond.
    let leading = i64::try_from(digits.len() - significant.len()).ok()?;
    let point = i64::try_from(whole.len()).ok()? - leading + i64::from(exponent);
    if point > 10 {
        return None;
    }
    let kept = usize::try_from(point + 6).unwrap_or(0);
    let cut = significant.get(..kept).unwrap_or(significant);
    let micros: u64 = format!("0{cut:0<kept$}").parse().ok()?;
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
            ("1794770000.1234567",  Some(1_794_770_000_123_456)),
            ("1794770000.9999999",  Some(1_794_770_000_999_999)),
            ("9007199254.740991",   Some(9_007_199_254_740_991)),
            ("9007199254.740992",   None),
            ("-0.0",                Some(0)),
            ("-0.0000001",          None),
            ("1e-7",                Some(0)),
            ("1.79477000012345678e9", Some(1_794_770_000_123_456)),
            ("17947700001234569E-7", Some(1_794_770_000_123_456)),
            ("0.00179477e+12",      Some(1_794_770_000_000_000)),
            ("19e-7",               Some(1)),
            ("0e999999999",         Some(0)),
            ("1e-400",              Some(0)),
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
    fn a_reservation_is_a_check_with_a_time_to_live() {
        let read = |body: &str| {
            let request = CheckRequest::parse(body.as_bytes()).unwrap();
            let (attributes, ttl) = request
                .reservation(false)
                .map_err(|error| error.to_string())?;
            Ok::<_, String>((attributes.costs().to_string(), ttl.get() / 1_000_000))
        };
        let body = |members: &str| format!(r#"{{"attributes": {{"a": "1"}}{members}}}"#);
        #[rustfmt::skip]
        let table = [
            ("",                                            "1",         300),
            (r#", "cost": 7"#,                              "7",         300),
            (r#", "costs": {"tokens": 60}, "ttl": 10"#,     "tokens=60", 10),
        ];
        for (members, costs, ttl) in table {
            assert_eq!(
                read(&body(members)),
                Ok((costs.to_owned(), ttl)),
                "{members}"
            );
        }
        for (members, expected) in [
            (r#", "cost": 0"#, "a cost above 0"),
            (r#", "costs": {"tokens": 0}"#, "a cost above 0"),
            (r#", "ttl": 0.5"#, "1 to 86400 seconds"),
        ] {
            let error = read(&body(members)).unwrap_err();
            assert!(error.contains(expected), "{members}: {error}");
        }
        let with_ttl = body(r#", "ttl": 10"#);
        let check = CheckRequest::parse(with_ttl.as_bytes()).unwrap();
        let error = check.attributes(false).unwrap_err().to_string();
        assert!(error.contains("`ttl` goes with"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |body: &str| {
            serde_json::from_str::<CheckRequest<'_>>(body)
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
            (r#"{"attributes": {}, "cost": 1e-400}"#,           "a whole number from 0"),
            (r#"{"attributes": {}, "cost": "1"}"#,              "a whole number from 0"),
        ];
        for (body, expected) in table {
            let error = error(body);
            assert!(error.contains(expected), "{body}: {error}");
        }
    }

    #[test]
    fn empty_attributes_are_counted_too() {
        let body = |count: usize| {
            let attributes: Vec<String> = (0..count).map(|n| format!(r#""a{n}": """#)).collect();
            format!(r#"{{"attributes": {{{}}}}}"#, attributes.join(", "))
        };
        let most = body(MAX_ATTRIBUTES);
        assert!(serde_json::from_str::<CheckRequest<'_>>(&most).is_ok());
        let more = body(MAX_ATTRIBUTES + 1);
        assert!(serde_json::from_str::<CheckRequest<'_>>(&more).is_err());
    }
}
