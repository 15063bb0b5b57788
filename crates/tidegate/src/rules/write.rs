//! Writes rules down as JSON: as they were written, and in the one form that all rules have that say
//! the same.

use serde_json::{Map, Value, json};
use tidegate_core::{Algorithm, Anchor, Micros, Rate, Timestamp, Window};

use super::RuleSet;
use super::keys::any_may_be;
use super::matching::Match;
use super::read_adaptive::default_burst;
use super::rule::{Cost, Grant, Missing, Mode, Named, OnStoreFailure, Rule, Sync};
use crate::adaptive::{Adaptive, AdaptiveLimit};
use crate::document::{Entry, Kind, Node, ScalarKind, Value as Written};
use crate::value::text_of_form;

impl RuleSet {
    /// The rules as a JSON list, as they were written.
    pub fn written(&self) -> Value {
        Value::Array(self.iter().map(|rule| rule.written.clone()).collect())
    }

    /// The rules as a JSON list, the same for all sets that say the same. Under the key `rules` it reads
    /// as the same set again.
    pub fn to_json(&self) -> Value {
        Value::Array(self.iter().map(|rule| rule.to_json()).collect())
    }
}

impl Rule {
    /// The rule as JSON, as it was written.
    pub fn written(&self) -> &Value {
        &self.written
    }

    /// The rule as JSON, the same for all rules that say the same: what is as by default is left out.
    /// It reads as the same rule again.
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
        put(
            "missing",
            match self.missing {
                Missing::Skip => Value::Null,
                Missing::Share => json!("share"),
                Missing::Deny => json!("deny"),
            },
        );
        put(
            "limit",
            match (self.adaptive(), self.grants.first()) {
                // The burst of its bucket is written with `max`.
                (Some(_), Some(Grant::Limits(limits))) if limits[0].window().is_some() => {
                    json!(rate(Rate {
                        burst: None,
                        ..limits[0].rate()
                    }))
                }
                (_, first) => first.map_or(Value::Null, grant),
            },
        );
        put("algorithm", json!(self.algorithm.map(Algorithm::name)));
        match self.algorithm {
            Some(Algorithm::FixedWindow {
                anchor: Anchor::FirstRequest,
            }) => put("anchor", json!("first_request")),
            Some(Algorithm::SlidingWindowSlots { slots, strict }) => {
                put("slots", json!(slots));
                put("strict", if strict { json!(true) } else { Value::Null });
            }
            Some(Algorithm::LeakyBucket { shape: false }) => put("shape", json!(false)),
            Some(Algorithm::Concurrency { lease_ttl })
                if lease_ttl != tidegate_core::limit::DEFAULT_LEASE_TTL =>
            {
                put("lease_ttl", json!(lease_ttl.to_string()));
            }
            _ => {}
        }
        put("adaptive", self.adaptive().map_or(Value::Null, adaptive));
        put("tiers", self.named(&self.tiers));
        put("overrides", self.named(&self.overrides));
        put(
            "cost",
            match &self.cost {
                Cost::Fixed(1) => Value::Null,
                Cost::Fixed(cost) => json!(cost),
                Cost::Attribute(name) => json!({"attribute": name}),
            },
        );
        let max_delay = self.max_delay.filter(|delay| !delay.is_zero());
        put("max_delay", json!(max_delay.map(|delay| delay.to_string())));
        put(
            "mode",
            match self.mode {
                Mode::Enforce => Value::Null,
                Mode::Shadow => json!("shadow"),
            },
        );
        put(
            "on_store_failure",
            match self.on_store_failure {
                OnStoreFailure::Allow => json!("allow"),
                OnStoreFailure::Deny => json!("deny"),
                OnStoreFailure::Local => Value::Null,
            },
        );
        put(
            "sync",
            match self.sync {
                Sync::Exact => Value::Null,
                Sync::Leased => json!("leased"),
            },
        );
        // By descriptors every rule settles, and none says so.
        let settles = self.settles && self.descriptor.is_none();
        put("settle", json!(settles.then_some(true)));
        put("starts_at", json!(self.starts_at.map(time)));
        put("expires_at", json!(self.expires_at.map(time)));
        Value::Object(map)
    }

    /// Tiers or overrides, in the order in which they were written.
    fn named(&self, named: &Named) -> Value {
        if named.is_empty() {
            return Value::Null;
        }
        let mut places: Vec<(&String, &usize)> = named.iter().collect();
        places.sort_by_key(|(_, place)| **place);
        let entry =
            |(name, place): (&String, &usize)| (text_of_form(name), grant(&self.grants[*place]));
        Value::Object(places.into_iter().map(entry).collect())
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

/// A part of a rule as it was written. YAML does not tell numbers from text; the rule's keys do.
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

fn adaptive(limit: &AdaptiveLimit) -> Value {
    let Adaptive { min, max, target } = limit.settings();
    let start = limit.start();
    let (min, max) = if start.window().is_some() {
        let at = |count| Rate {
            count,
            ..start.rate()
        };
        let without_burst = |count| Rate {
            burst: None,
            ..at(count)
        };
        let is_default = start.capacity() == default_burst(&at(max));
        let highest = if is_default {
            without_burst(max)
        } else {
            at(max)
        };
        (json!(rate(without_burst(min))), json!(rate(highest)))
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
            _ => {
                let texts: Vec<String> = limits.iter().map(|limit| rate(limit.rate())).collect();
                json!(texts.join("; "))
            }
        },
    }
}

/// A rate as people write it: `100/minute` rather than `100/1m`.
pub(super) fn rate(rate: Rate) -> String {
    let words = [
        (Micros::SECOND, "second"),
        (Micros::MINUTE, "minute"),
        (Micros::HOUR, "hour"),
        (Micros::DAY, "day"),
        (Micros::WEEK, "week"),
    ];
    let word = words
        .iter()
        .find(|(span, _)| rate.window == Some(Window::Span(*span)));
    match (word, rate.burst) {
        (Some((_, word)), Some(burst)) => format!("{}/{word} burst {burst}", rate.count),
        (Some((_, word)), None) => format!("{}/{word}", rate.count),
        (None, _) => rate.to_string(),
    }
}

fn time(time: Timestamp) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| String::new(), |time| time.to_string())
}
