//! A test of a request, such as "the method is POST", and how a rule writes it: in `match`, or in `except`.

use ipnet::IpNet;
use serde_json::{Map, Value, json};

/// What a part of a key or the subject of a test is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum RequestFact {
    Address,
    Method,
    Path,
    Host,
    /// The attribute of this name, which a request may lack.
    Attribute(String),
}

impl RequestFact {
    /// The name of the attribute.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Address => "ip",
            Self::Method => "method",
            Self::Path => "path",
            Self::Host => "host",
            Self::Attribute(name) => name,
        }
    }

    /// Whether a request may lack it.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(self, Self::Attribute(_))
    }
}

/// Something that holds for a request or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestTest {
    pub(crate) fact: RequestFact,
    pub(crate) looks_for: LooksFor,
    pub(crate) is_negated: bool,
}

/// What a test looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LooksFor {
    /// One of these texts.
    Texts(Vec<String>),
    /// An address in one of these networks.
    Networks(Vec<IpNet>),
    /// A text that matches.
    Pattern(String),
    /// Any value.
    Any,
}

impl RequestTest {
    pub(crate) fn negated(mut self) -> Self {
        self.is_negated = !self.is_negated;
        self
    }

    /// Whether both can never hold for one request.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        self.fact == other.fact
            && self.looks_for == other.looks_for
            && self.is_negated != other.is_negated
    }

    /// The test without its negation, as keys of `match`.
    fn keys(&self) -> Map<String, Value> {
        let mut keys = Map::new();
        let name = self.fact.name().to_owned();
        match (&self.fact, &self.looks_for) {
            (RequestFact::Attribute(_), LooksFor::Texts(texts)) => {
                keys.insert("attributes".to_owned(), json!({ name: texts }));
            }
            (_, LooksFor::Texts(texts)) => {
                keys.insert(name, json!(texts));
            }
            (_, LooksFor::Networks(networks)) => {
                let networks: Vec<String> = networks.iter().map(shown_network).collect();
                keys.insert(name, json!(networks));
            }
            (_, LooksFor::Pattern(_) | LooksFor::Any) => {
                keys.insert("when".to_owned(), json!(self.condition()));
            }
        }
        keys
    }

    /// The test without its negation, as a condition.
    fn condition(&self) -> String {
        let name = quoted(self.fact.name());
        let value = format!("attributes[{name}]");
        let present = format!("{name} in attributes");
        match &self.looks_for {
            LooksFor::Pattern(pattern) => {
                let matches = format!("{value}.matches({})", quoted(pattern));
                if self.fact.is_optional() {
                    format!("{present} && {matches}")
                } else {
                    matches
                }
            }
            LooksFor::Any | LooksFor::Networks(_) => present,
            LooksFor::Texts(texts) => {
                let equal = texts
                    .iter()
                    .map(|text| format!("{value} == {}", quoted(text)));
                any_of(&equal.collect::<Vec<_>>())
            }
        }
    }
}

/// An address without the length of its prefix, where that is all of it.
fn shown_network(network: &IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() {
        network.addr().to_string()
    } else {
        network.to_string()
    }
}

/// What a rule says about requests: `match` and `except`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RuleScope {
    matches: Map<String, Value>,
    conditions: Vec<String>,
    except: Vec<Value>,
}

impl RuleScope {
    /// Requires the values of a key of `match`. Whether it had none before.
    pub(crate) fn require(&mut self, key: &str, values: Value) -> bool {
        match (self.matches.get_mut(key), values) {
            (None, values) => {
                self.matches.insert(key.to_owned(), values);
                true
            }
            // Several attributes must all have their values.
            (Some(Value::Object(known)), Value::Object(more)) => {
                let is_new = more.keys().all(|name| !known.contains_key(name));
                known.extend(more);
                is_new
            }
            _ => false,
        }
    }

    /// Requires a condition.
    pub(crate) fn require_condition(&mut self, condition: String) {
        self.conditions.push(condition);
    }

    /// Adds an exception.
    pub(crate) fn except(&mut self, item: Map<String, Value>) {
        if !item.is_empty() {
            self.except.push(Value::Object(item));
        }
    }

    /// Adds a test. The error says why a rule cannot have it.
    pub(crate) fn add(&mut self, test: &RequestTest) -> Result<(), String> {
        if test.is_negated && test.looks_for == LooksFor::Any {
            self.require_condition(format!("!({})", test.condition()));
            return Ok(());
        }
        if test.is_negated {
            self.except(test.keys());
            return Ok(());
        }
        for (key, value) in test.keys() {
            if key == "when" {
                self.require_condition(test.condition());
            } else if !self.require(&key, value) {
                match test.looks_for {
                    LooksFor::Texts(_) => self.require_condition(test.condition()),
                    _ => return Err(format!("it needs two lists of `{key}` at the same time")),
                }
            }
        }
        Ok(())
    }

    /// The keys `match` and `except` of a rule.
    pub(crate) fn write(mut self, rule: &mut Map<String, Value>) {
        if !self.conditions.is_empty() {
            let condition = all_of(&self.conditions);
            self.matches.insert("when".to_owned(), json!(condition));
        }
        if !self.matches.is_empty() {
            rule.insert("match".to_owned(), Value::Object(self.matches));
        }
        if !self.except.is_empty() {
            rule.insert("except".to_owned(), Value::Array(self.except));
        }
    }
}

/// A text as a condition writes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A condition that holds if one of these does.
pub(crate) fn any_of(conditions: &[String]) -> String {
    joined(conditions, " || ", "&&")
}

/// A condition that holds if all of these do.
pub(crate) fn all_of(conditions: &[String]) -> String {
    joined(conditions, " && ", "||")
}

/// Conditions with a sign between them, in brackets if they have the other sign.
fn joined(conditions: &[String], sign: &str, other: &str) -> String {
    match conditions {
        [only] => only.clone(),
        several => {
            let bracketed = several.iter().map(|condition| {
                // What is negated is in brackets already.
                if condition.contains(other) && !condition.starts_with("!(") {
                    format!("({condition})")
                } else {
                    condition.clone()
                }
            });
            bracketed.collect::<Vec<_>>().join(sign)
        }
    }
}
