//! Writes rules as JSON: as in the file, and in a canonical form.

use serde_json::{Map, Value, json};
use smallvec::{SmallVec, smallvec};
use tidegate_core::{Algorithm, Timestamp};

use super::RuleSet;
use super::explain::limits_text;
use super::grant::{Grant, GrantIndexes};
use super::keys::{CANDIDATE, any_may_be};
use super::matching::Match;
use super::read_adaptive::default_burst;
use super::read_budget::UNSETTLED;
use super::read_limit::ANCHORS;
use super::read_rule::{MISSING, MODES, ON_STORE_FAILURE_OF_DESCRIPTOR, SYNCS};
use super::rule::{Cost, Rule};
use crate::adaptive::{Adaptive, AdaptiveBounds};
use crate::internal::document::{self, Entry, Kind, Node, ScalarKind, Value as Written};
use crate::value::text_of_form;

impl RuleSet {
    /// The rules as a JSON list, as they were written.
    pub fn written(&self) -> Value {
        Value::Array(self.iter().map(|rule| rule.written.clone()).collect())
    }

    /// The canonical form of the rules as a JSON list: equal sets have equal lists. Under the key `rules` it reads as
    /// the same set again.
    pub fn to_json(&self) -> Value {
        Value::Array(self.iter().map(|rule| rule.to_json()).collect())
    }
}

impl Rule {
    /// The rule as JSON, as it was written.
    pub fn written(&self) -> &Value {
        &self.written
    }

    /// The canonical form of the rule as JSON, without defaults: equal rules have equal JSON. It reads as the same rule
    /// again.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                map.insert(key.to_owned(), value);
            }
        };
        put("id", json!(self.id));
        put("description", json!(self.description));
        put("match", self.matches.to_json());
        let except: Vec<Value> = self.except.iter().map(Match::to_json).collect();
        put(
            "except",
            if except.is_empty() {
                Value::Null
            } else {
                Value::Array(except)
            },
        );
        put("per", json!(self.per));
        put("missing", word(&MISSING, self.missing));
        put(
            "limit",
            match (self.adaptive(), self.grants.first()) {
                // The burst of its bucket is written with `max`.
                (Some(_), Some(Grant::Limits(limits))) if limits[0].window().is_some() => {
                    json!(limits[0].rate().without_burst().to_string())
                }
                (_, first) => first.map_or(Value::Null, grant),
            },
        );
        if let Some(algorithm) = self.algorithm {
            for (key, value) in algorithm_keys(algorithm) {
                put(key, value);
            }
        }
        put("adaptive", self.adaptive().map_or(Value::Null, adaptive));
        put("tiers", self.named(&self.tiers));
        put("overrides", self.named(&self.overrides));
        put("candidate", self.candidate_json());
        put(
            "rollout",
            json!(self.rollout.map(|share| share.to_string())),
        );
        if !self.unit.is_requests() {
            put("unit", json!(self.unit.as_str()));
        }
        if self.cost != Cost::Fixed(1) {
            put("cost", cost(self.cost.clone()));
        }
        let max_delay = self.max_delay.filter(|delay| !delay.is_zero());
        put("max_delay", json!(max_delay.map(|delay| delay.to_string())));
        put("mode", word(&MODES, self.mode));
        put(
            "on_store_failure",
            word(&ON_STORE_FAILURE_OF_DESCRIPTOR, self.on_store_failure),
        );
        let denied = self.denied.as_ref().map(|denied| denied.written());
        put("denied", denied.unwrap_or_default());
        put("sync", word(&SYNCS, self.sync));
        // By descriptors every rule settles, and none says so.
        let settles = self.settles && self.descriptor.is_none();
        put("settle", json!(settles.then_some(true)));
        put("unsettled", word(&UNSETTLED, self.unsettled));
        put("warn_at", json!(self.warn_at));
        put("starts_at", json!(self.starts_at.map(write_time)));
        put("expires_at", json!(self.expires_at.map(write_time)));
        Value::Object(map)
    }

    /// What its candidate changes: the limit alone, or a map.
    fn candidate_json(&self) -> Value {
        let Some(candidate) = &self.candidate else {
            return Value::Null;
        };
        let own = Self {
            candidate: None,
            ..self.clone()
        };
        let (own, mut tried) = (own.to_json(), candidate.to_json());
        let algorithm = tried["algorithm"].as_str().unwrap_or("token_bucket");
        let mut changed = Map::new();
        for row in &CANDIDATE {
            let is_of_algorithm = row.needs.is_empty() || row.needs.contains(&algorithm);
            let value = match &tried[row.name] {
                // It takes away what its rule has.
                Value::Null if is_of_algorithm && !own[row.name].is_null() => match row.default {
                    "" => json!({}),
                    default => json!(document::value(default)),
                },
                value => value.clone(),
            };
            // An option of the algorithm that it replaces goes with that.
            if value != own[row.name] && !value.is_null() {
                changed.insert(row.name.to_owned(), value);
            }
        }
        if changed.keys().any(|key| key != "limit") {
            return Value::Object(changed);
        }
        tried["limit"].take()
    }

    /// Tiers or overrides, in the order in which they were written.
    fn named(&self, named: &GrantIndexes) -> Value {
        if named.is_empty() {
            return Value::Null;
        }
        let entry = |(name, granted)| (name, grant(granted));
        Value::Object(self.in_order(named).map(entry).collect())
    }
}

impl Match {
    fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, list: Vec<String>| {
            if !list.is_empty() {
                map.insert(key.to_owned(), json!(list));
            }
        };
        put("path", self.path.iter().map(ToString::to_string).collect());
        put("method", self.method.clone());
        put("host", self.host.iter().map(ToString::to_string).collect());
        put("ip", self.ip.iter().map(ToString::to_string).collect());
        if !self.attributes.is_empty() {
            let entry = |(name, values): &(String, Vec<String>)| {
                let texts = values.iter().map(|value| text_of_form(value));
                (name.clone(), json!(texts.collect::<Vec<_>>()))
            };
            let attributes = self.attributes.iter().map(entry).collect();
            map.insert("attributes".to_owned(), Value::Object(attributes));
        }
        if let Some(condition) = &self.when {
            map.insert("when".to_owned(), json!(condition.text()));
        }
        if map.is_empty() {
            Value::Null
        } else {
            Value::Object(map)
        }
    }
}

/// A part of a rule as it was written. YAML does not distinguish numbers from text; the rule's keys do.
pub(super) fn as_written(node: &Node) -> Value {
    written_under("", node)
}

fn written_under(key: &str, node: &Node) -> Value {
    match &node.value {
        Written::Null => Value::Null,
        Written::List(list) => list.iter().map(|item| written_under(key, item)).collect(),
        Written::Map(entries) => {
            // Below `attributes` all is text, whatever it is called.
            let under = |name: &str| match key {
                "attributes" => "attributes".to_owned(),
                _ => name.to_owned(),
            };
            let entry = |entry: &Entry| {
                let value = written_under(&under(&entry.key), &entry.value);
                (entry.key.clone(), value)
            };
            let is_there = |(_, value): &(String, Value)| !value.is_null();
            Value::Object(entries.iter().map(entry).filter(is_there).collect())
        }
        Written::Scalar(scalar) => {
            let text = scalar.text.as_str();
            let number = || text.parse::<u64>().ok().map(Value::from);
            let boolean = || text.parse::<bool>().ok().map(Value::from);
            let may_be = |is| any_may_be(key, is);
            let typed = match scalar.kind {
                ScalarKind::Number => number(),
                ScalarKind::Boolean => boolean(),
                ScalarKind::Plain if may_be(|kind| matches!(kind, Kind::Whole(..))) => number(),
                ScalarKind::Plain if may_be(|kind| matches!(kind, Kind::Flag)) => boolean(),
                ScalarKind::Plain | ScalarKind::Text => None,
            };
            typed.unwrap_or_else(|| Value::from(text))
        }
    }
}

/// The word for a value; null if it is the default.
pub(super) fn word<T: Copy + Default + PartialEq>(words: &[(&str, T)], value: T) -> Value {
    let word = words.iter().find(|(_, known)| *known == value);
    let word = word.filter(|_| value != T::default());
    json!(word.map(|(word, _)| *word))
}

pub(super) fn cost(cost: Cost) -> Value {
    match cost {
        Cost::Fixed(cost) => json!(cost),
        Cost::Attribute(name) => json!({"attribute": name}),
    }
}

/// The keys that name an algorithm and set its options; null for an option that has its default. The delay of
/// a token bucket is not among them: a rule may have one without naming its algorithm.
pub(super) fn algorithm_keys(algorithm: Algorithm) -> SmallVec<[(&'static str, Value); 3]> {
    let unless = |is_default: bool, value: Value| if is_default { Value::Null } else { value };
    let mut keys = smallvec![("algorithm", json!(algorithm.name()))];
    match algorithm {
        Algorithm::FixedWindow { anchor } => {
            keys.push(("anchor", word(&ANCHORS, anchor)));
        }
        Algorithm::SlidingWindowSlots { slots, strict } => {
            keys.push(("slots", json!(slots)));
            keys.push(("strict", unless(!strict, json!(strict))));
        }
        Algorithm::LeakyBucket { shape } => keys.push(("shape", unless(shape, json!(shape)))),
        Algorithm::Concurrency { lease_ttl } => {
            let is_default = lease_ttl == tidegate_core::limit::DEFAULT_LEASE_TTL;
            keys.push((
                "lease_ttl",
                unless(is_default, json!(lease_ttl.to_string())),
            ));
        }
        _ => {}
    }
    keys
}

fn adaptive(bounds: &AdaptiveBounds) -> Value {
    let Adaptive { min, max, target } = bounds.settings();
    let start = bounds.start();
    let (min, max) = if start.window().is_some() {
        let at = |count| start.rate().with_count(count);
        let without_burst = |count| at(count).without_burst();
        let is_default = start.capacity() == default_burst(&at(max));
        let highest = if is_default {
            without_burst(max)
        } else {
            at(max)
        };
        (
            json!(without_burst(min).to_string()),
            json!(highest.to_string()),
        )
    } else {
        (json!(min), json!(max))
    };
    match target {
        Some(target) => json!({"min": min, "max": max, "target": target.to_string()}),
        None => json!({"min": min, "max": max}),
    }
}

fn grant(grant: &Grant) -> Value {
    match grant {
        Grant::Unlimited => json!("unlimited"),
        Grant::Blocked => json!("blocked"),
        Grant::Limits(limits) => match limits.as_slice() {
            [limit] if limit.window().is_none() => json!(limit.rate().count),
            _ => json!(limits_text(limits)),
        },
    }
}

/// A time as text, such as `2026-11-16T01:26:31.385863Z`: in UTC, with as many decimals as it has.
#[doc(hidden)]
pub fn write_time(time: Timestamp) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| String::new(), |time| time.to_string())
}
