//! What a request costs, in bodies: `cost`, or `costs` by unit.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use tidegate::{Costs, MAX_UNITS};

use super::number::whole_exactly;
use crate::CodecError;

/// The member `cost`.
pub(super) fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    whole_exactly(deserializer, "cost").map(Some)
}

/// The cost of a request that has at most one of `cost` and `costs`. Without either it is 1.
#[inline]
pub(super) fn costs_of(cost: Option<u64>, costs: Option<JsonCosts>) -> Result<Costs, CodecError> {
    match (cost, costs) {
        (None, Some(JsonCosts(costs))) => Ok(costs),
        (cost, None) => Ok(cost.unwrap_or(1).into()),
        (Some(_), Some(_)) => Err(CodecError::invalid(
            "give `cost`, which every rule is charged, or `costs` by unit, and not both",
        )),
    }
}

/// Costs as a JSON object of whole numbers, by unit.
pub(super) struct JsonCosts(
    /// The costs.
    pub(super) Costs,
);

impl<'de> Deserialize<'de> for JsonCosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CostsVisitor;
        impl<'de> Visitor<'de> for CostsVisitor {
            type Value = JsonCosts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of costs by unit such as {\"tokens\": 60}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonCosts, A::Error> {
                let mut costs: Vec<(Cow<'de, str>, u64)> = Vec::new();
                while let Some(unit) = map.next_key()? {
                    costs.push((unit, map.next_value_seed(WholeCost)?));
                    if costs.len() > MAX_UNITS {
                        break;
                    }
                }
                let by_unit = costs.iter().map(|(unit, cost)| (&**unit, *cost));
                let costs = Costs::by_unit(by_unit)
                    .map_err(|error| A::Error::custom(format_args!("`costs`: {error}")))?;
                Ok(JsonCosts(costs))
            }
        }
        deserializer.deserialize_map(CostsVisitor)
    }
}

struct WholeCost;

impl<'de> DeserializeSeed<'de> for WholeCost {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        whole_exactly(deserializer, "costs")
    }
}

#[cfg(test)]
mod tests {
    use super::super::question::CheckRequest;

    fn costs(members: &str) -> Result<String, String> {
        let body = format!(r#"{{"attributes": {{}}{members}}}"#);
        let request = CheckRequest::parse(body.as_bytes()).map_err(|error| error.to_string())?;
        let attributes = request.attributes(false);
        attributes
            .map(|attributes| format!("{:?}", attributes.costs()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn costs_in_bodies_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("",                                                    "1"),
            (r#", "cost": 7"#,                                      "7"),
            (r#", "costs": {}"#,                                    "{}"),
            (r#", "costs": {"tokens": 60, "input_tokens": 2e1}"#,   "{input_tokens: 20, tokens: 60}"),
            (r#", "costs": {"\u0061": 9007199254740991}"#,          "{a: 9007199254740991}"),
        ];
        for (members, expected) in table {
            assert_eq!(costs(members).as_deref(), Ok(expected), "{members}");
        }
        let many: Vec<String> = (0..33).map(|n| format!(r#""u{n}": 1"#)).collect();
        let many = format!(r#", "costs": {{{}}}"#, many.join(","));
        #[rustfmt::skip]
        let refused = [
            (r#", "cost": 1, "costs": {}"#,                         "and not both"),
            (r#", "cost": null"#,                                   "a whole number from 0"),
            (r#", "costs": null"#,                                  "an object of costs by unit"),
            (r#", "costs": 1"#,                                     "an object of costs by unit"),
            (r#", "costs": [["a", 1]]"#,                            "an object of costs by unit"),
            (r#", "costs": {"a": -1}"#,                             "a whole number from 0"),
            (r#", "costs": {"a": 0.5}"#,                            "a whole number from 0"),
            (r#", "costs": {"a": "1"}"#,                            "a whole number from 0"),
            (r#", "costs": {"a": 9007199254740992}"#,               "a whole number from 0"),
            (r#", "costs": {"A": 1}"#,                              "`A` cannot be a unit"),
            (r#", "costs": {"a": 1, "a": 1}"#,                      "`a` is given twice"),
            (many.as_str(),                                         "more than 32 units"),
        ];
        for (members, expected) in refused {
            let error = costs(members).unwrap_err();
            assert!(error.contains(expected), "{members}: {error}");
        }
    }
}
