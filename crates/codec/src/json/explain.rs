//! The body of `POST /v1/explain`: attributes, a raw request, or a client.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use tidegate::{Attributes, Costs, Timestamp};

use super::costs::{JsonCosts, cost, costs_of};
use super::question::{JsonAttributes, given, time};
use crate::CodecError;

/// The most headers of a raw request, as at the gateway.
pub const MAX_HEADERS: usize = 100;

/// The body of `POST /v1/explain`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'b: 'de"))]
pub struct ExplainRequest<'b> {
    #[serde(default, borrow, deserialize_with = "given")]
    attributes: Option<JsonAttributes<'b>>,
    #[serde(default, deserialize_with = "given")]
    request: Option<RawRequest>,
    #[serde(default, borrow, deserialize_with = "given")]
    client: Option<Cow<'b, str>>,
    #[serde(default, borrow, deserialize_with = "given")]
    rule: Option<Cow<'b, str>>,
    #[serde(default, deserialize_with = "cost")]
    cost: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    costs: Option<JsonCosts>,
    #[serde(default, borrow)]
    timestamp: Option<&'b RawValue>,
}

/// What is explained.
pub enum ExplainedSubject<'b> {
    /// A request with these attributes.
    Attributes(Box<Attributes<'b>>),
    /// A request as a client sends it.
    Request(RawRequest),
    /// The last request of a client.
    Client {
        /// The value of an attribute that a rule counts by, or its digest.
        client: Cow<'b, str>,
        /// The rule that counts by it.
        rule: Option<Cow<'b, str>>,
    },
}

/// What a request costs, and when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedTerms {
    /// The cost, or the costs by unit.
    pub costs: Costs,
    /// The time, if it is not now.
    pub at: Option<Timestamp>,
}

impl ExplainedTerms {
    /// A request on these terms.
    #[must_use]
    pub fn of<'a>(&self, attributes: Attributes<'a>) -> Attributes<'a> {
        let attributes = attributes.with_cost(self.costs.clone());
        match self.at {
            Some(at) => attributes.at(at),
            None => attributes,
        }
    }
}

impl<'b> ExplainRequest<'b> {
    /// What is to be explained, and on which terms.
    pub fn subject(
        self,
        trust_timestamps: bool,
    ) -> Result<(ExplainedSubject<'b>, ExplainedTerms), CodecError> {
        let at = time(self.timestamp, trust_timestamps)?;
        let terms = ExplainedTerms {
            costs: costs_of(self.cost, self.costs)?,
            at,
        };
        let subject = match (self.attributes, self.request, self.client) {
            (Some(attributes), None, None) => ExplainedSubject::Attributes(Box::new(attributes.0)),
            (None, Some(request), None) => ExplainedSubject::Request(request),
            (None, None, Some(client)) => {
                let rule = self.rule;
                return Ok((ExplainedSubject::Client { client, rule }, terms));
            }
            _ => {
                return Err(CodecError::invalid(
                    "give exactly one of `attributes`, `request` and `client`",
                ));
            }
        };
        if self.rule.is_some() {
            return Err(CodecError::invalid("`rule` goes with `client` only"));
        }
        Ok((subject, terms))
    }
}

/// A request as a client sends it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRequest {
    /// The method.
    #[serde(default = "get")]
    pub method: String,
    /// The URL, absolute or a path.
    pub url: String,
    /// The headers, in order.
    #[serde(default, deserialize_with = "headers")]
    pub headers: Vec<(String, String)>,
    /// The address from which it comes, which may be that of a proxy.
    #[serde(default)]
    pub address: Option<String>,
}

fn get() -> String {
    "GET".to_owned()
}

/// An object of names and values; a value is text, or a list of texts for a header that is sent several times.
fn headers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, String)>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "the value of a header must be text, or a list of texts"
    )]
    enum HeaderText {
        One(String),
        Several(Vec<String>),
    }
    struct HeadersVisitor;
    impl<'de> Visitor<'de> for HeadersVisitor {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of headers such as {\"x-api-key\": \"k1\"}")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut headers = Vec::new();
            while let Some(name) = map.next_key::<String>()? {
                let values = match map.next_value()? {
                    HeaderText::One(value) => vec![value],
                    HeaderText::Several(values) => values,
                };
                headers.extend(values.into_iter().map(|value| (name.clone(), value)));
                if headers.len() > MAX_HEADERS {
                    return Err(A::Error::custom(format_args!(
                        "a request may have at most {MAX_HEADERS} headers"
                    )));
                }
            }
            Ok(headers)
        }
    }
    from.deserialize_map(HeadersVisitor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(body: &str) -> Result<String, String> {
        let request: ExplainRequest<'_> =
            crate::json::parse(body.as_bytes()).map_err(|error| error.to_string())?;
        let (subject, terms) = request.subject(false).map_err(|error| error.to_string())?;
        let text = match subject {
            ExplainedSubject::Attributes(attributes) => format!("{:?}", attributes.get("a")),
            ExplainedSubject::Request(raw) => format!("{raw:?}"),
            ExplainedSubject::Client { client, rule } => format!("{client} {rule:?}"),
        };
        Ok(format!("{text} {:?}", terms.costs))
    }

    #[test]
    fn exactly_one_subject_is_explained() {
        let one = "give exactly one of `attributes`, `request` and `client`";
        #[rustfmt::skip]
        let table = [
            (r#"{"attributes": {"a": "b"}, "cost": 2}"#,          r#"Some("b") 2"#),
            (r#"{"attributes": {}, "costs": {"tokens": 2}}"#,       "None {tokens: 2}"),
            (r#"{"client": "u1"}"#,                               "u1 None 1"),
            (r#"{"client": "u1", "rule": "r"}"#,                  r#"u1 Some("r") 1"#),
            (r#"{"request": {"url": "/"}}"#,                      r#"RawRequest { method: "GET", url: "/", headers: [], address: None } 1"#),
            (r#"{"request": {"url": "/", "headers": {"a": ["1", "2"], "b": "3"}, "address": "::1"}}"#,
                r#"RawRequest { method: "GET", url: "/", headers: [("a", "1"), ("a", "2"), ("b", "3")], address: Some("::1") } 1"#),
        ];
        for (body, expected) in table {
            assert_eq!(subject(body).as_deref(), Ok(expected), "{body}");
        }
        #[rustfmt::skip]
        let refused = [
            ("{}",                                              one),
            (r#"{"attributes": {}, "client": "u1"}"#,           one),
            (r#"{"attributes": {}, "request": {"url": "/"}}"#,  one),
            (r#"{"client": "u1", "cost": 1, "costs": {}}"#,     "and not both"),
            (r#"{"attributes": {}, "rule": "r"}"#,              "`rule` goes with `client` only"),
            (r#"{"request": {}}"#,                              "missing field `url`"),
            (r#"{"request": {"url": "/", "headers": {"a": 1}}}"#, "must be text, or a list of texts"),
            (r#"{"request": {"url": "/", "headers": []}}"#,     "an object of headers"),
            (r#"{"request": {"url": "/", "body": ""}}"#,        "unknown field `body`"),
            (r#"{"client": 7}"#,                                "a string"),
            (r#"{"client": "u1", "rule": null}"#,               "a string"),
            (r#"{"client": "u1", "attributes": null}"#,         "an object of attributes"),
        ];
        for (body, expected) in refused {
            let error = subject(body).unwrap_err();
            assert!(error.contains(expected), "{body}: {error}");
        }
        let many = |count: usize| {
            let values = vec![r#""1""#; count].join(",");
            format!(r#"{{"request": {{"url": "/", "headers": {{"a": [{values}]}}}}}}"#)
        };
        assert!(subject(&many(MAX_HEADERS)).is_ok());
        let error = subject(&many(MAX_HEADERS + 1)).unwrap_err();
        assert!(error.contains("at most 100 headers"), "{error}");
    }
}
