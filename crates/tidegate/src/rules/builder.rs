//! Builds rules in Rust. A builder writes the same document as a rule file, and the reader of files validates it.

use std::fmt::Display;
use std::time::Duration;

use serde::de::Deserialize as _;
use serde_json::{Map, Value, json};
use tidegate_core::{Algorithm, Micros, Timestamp};

use super::denied::DenialAnswer;
use super::key_share::KeyShare;
use super::matching::Match;
use super::read_budget::UNSETTLED;
use super::read_rule::{MISSING, MODES, ON_STORE_FAILURE, SYNCS};
use super::rule::{Consistency, Cost, Missing, Mode, OnStoreFailure, Rule, Unsettled};
use super::{RuleSettings, write};
use crate::internal::document::{Node, Place, Problems, Spot};

/// Builds a rule. Created by [`Rule::builder`].
///
/// Each method sets the key of a rule file with the same name. Keys that are not set have the same default.
#[derive(Debug, Clone)]
#[must_use]
pub struct RuleBuilder {
    document: Map<String, Value>,
}

/// Which requests a rule is about, while it is being made. Begun by [`Match::builder`].
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct MatchBuilder {
    document: Map<String, Value>,
}

impl Rule {
    /// Begins a rule with this id.
    ///
    /// ```
    /// use tidegate::rules::{Match, Missing, Rule, RuleSet};
    /// use tidegate::{Algorithm, Gate, MemoryStore};
    ///
    /// let per_user = Rule::builder("per-user")
    ///     .matching(Match::builder().path("/v1/**").method("POST"))
    ///     .except(Match::builder().path("/v1/health"))
    ///     .per(["user_id"])
    ///     .missing(Missing::Deny)
    ///     .limit("100/minute")
    ///     .tier("pro", "1000/minute")
    ///     .override_for("u1", "unlimited")
    ///     .algorithm(Algorithm::SlidingWindowCounter)
    ///     .build()?;
    /// let exports = Rule::builder("exports")
    ///     .matching(Match::builder().path("/export"))
    ///     .per([])
    ///     .limit(5)
    ///     .algorithm(Algorithm::CONCURRENCY)
    ///     .build()?;
    /// let gate = Gate::new(MemoryStore::new(), RuleSet::from_rules([per_user, exports])?);
    ///
    /// let problems = Rule::builder("typo").per(["ip"]).limit("100/fortnight").build();
    /// let text = problems.expect_err("a unit that does not exist").to_string();
    /// assert!(text.contains("rule `typo`, field `limit`:"), "{text}");
    /// # Ok::<(), tidegate::document::Problems>(())
    /// ```
    pub fn builder(id: &str) -> RuleBuilder {
        let document = Map::from_iter([("id".to_owned(), json!(id))]);
        RuleBuilder { document }
    }
}

impl RuleBuilder {
    /// Text for people.
    pub fn description(self, text: &str) -> Self {
        self.set("description", json!(text))
    }

    /// The requests that the rule applies to. By default all.
    pub fn matching(self, requests: MatchBuilder) -> Self {
        self.set("match", Value::Object(requests.document))
    }

    /// Adds requests that it does not apply to.
    pub fn except(mut self, requests: MatchBuilder) -> Self {
        push(
            &mut self.document,
            "except",
            Value::Object(requests.document),
        );
        self
    }

    /// The attributes that make the key; none for one counter for all requests.
    pub fn per<'n>(self, attributes: impl IntoIterator<Item = &'n str>) -> Self {
        self.set("per", attributes.into_iter().collect())
    }

    /// The handling of requests without the attributes of `per`. By default the rule is skipped.
    pub fn missing(self, missing: Missing) -> Self {
        self.set("missing", write::word(&MISSING, missing))
    }

    /// The limit: a [`Rate`](crate::Rate), or text such as `100/minute burst 20`, `10/minute; 2/second`, `unlimited` or
    /// `blocked`; for concurrency a number.
    pub fn limit(self, limit: impl Display) -> Self {
        self.set("limit", number_or_text(limit))
    }

    /// How requests are counted, by all limits of the rule. Unless this is called, each limit is counted by its
    /// [default](Algorithm::default_for).
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        for (key, value) in write::algorithm_keys(algorithm) {
            self = self.set(key, value);
        }
        match algorithm {
            Algorithm::TokenBucket { max_delay } if !max_delay.is_zero() => {
                self.set("max_delay", json!(max_delay.to_string()))
            }
            _ => self,
        }
    }

    /// Lets the limit follow the capacity of the upstream, between `min` and `max`: numbers for concurrency, otherwise
    /// rates. With a `target`, the limit keeps the latency of the typical request below it.
    pub fn adaptive(self, min: impl Display, max: impl Display, target: Option<Duration>) -> Self {
        let mut bounds = json!({"min": number_or_text(min), "max": number_or_text(max)});
        if let Some(target) = target {
            bounds["target"] = json!(Micros::from(target).to_string());
        }
        self.set("adaptive", bounds)
    }

    /// The limit of requests whose attribute `tier` is `name`.
    pub fn tier(self, name: &str, limit: impl Display) -> Self {
        self.insert("tiers", name, number_or_text(limit))
    }

    /// The limit of requests whose first attribute of `per` is `value`, or has this hash (`sha256:…`). For `ip`, an
    /// address or a network.
    pub fn override_for(self, value: &str, limit: impl Display) -> Self {
        self.insert("overrides", value, number_or_text(limit))
    }

    /// A limit that is tried next to the rule's own, with counters of its own: any form of a limit.
    pub fn candidate(self, limit: impl Display) -> Self {
        self.set("candidate", number_or_text(limit))
    }

    /// The share of keys that the candidate decides for or, without one, the rule itself. The others only count.
    pub fn rollout(self, share: KeyShare) -> Self {
        self.set("rollout", json!(share.to_string()))
    }

    /// What the limits count: requests unless this is called.
    pub fn unit(self, unit: &str) -> Self {
        self.set("unit", json!(unit))
    }

    /// How much a request takes, multiplied by its own cost: 1 unless this is called.
    pub fn cost(self, cost: Cost) -> Self {
        self.set("cost", write::cost(cost))
    }

    /// Whether the rule is enforced, or only counts what it would have decided.
    pub fn mode(self, mode: Mode) -> Self {
        self.set("mode", write::word(&MODES, mode))
    }

    /// The handling of requests while the store is unavailable.
    pub fn on_store_failure(self, action: OnStoreFailure) -> Self {
        self.set("on_store_failure", write::word(&ON_STORE_FAILURE, action))
    }

    /// The answer to denied clients, instead of the usual one.
    pub fn denied(self, answer: &DenialAnswer) -> Self {
        self.set("denied", answer.written())
    }

    /// How instances that share a store agree.
    pub fn sync(self, consistency: Consistency) -> Self {
        self.set("sync", write::word(&SYNCS, consistency))
    }

    /// Takes a cost that was spent already as far as it fits.
    pub fn settle(self) -> Self {
        self.set("settle", json!(true))
    }

    /// What becomes of a reservation that is not settled. By default its estimate stays charged.
    pub fn unsettled(self, unsettled: Unsettled) -> Self {
        self.set("unsettled", write::word(&UNSETTLED, unsettled))
    }

    /// The percentage of a limit from which its use is reported, 1 to 99.
    pub fn warn_at(self, percent: u8) -> Self {
        self.set("warn_at", json!(percent))
    }

    /// When it begins to apply.
    pub fn starts_at(self, time: impl Into<Timestamp>) -> Self {
        self.set("starts_at", json!(write::write_time(time.into())))
    }

    /// When it ends.
    pub fn expires_at(self, time: impl Into<Timestamp>) -> Self {
        self.set("expires_at", json!(write::write_time(time.into())))
    }

    /// The rule, or everything that is wrong with it.
    pub fn build(self) -> Result<Rule, Problems> {
        self.build_with(&RuleSettings::default())
    }

    /// The rule by other settings than the default ones, or everything that is wrong with it.
    pub fn build_with(self, settings: &RuleSettings) -> Result<Rule, Problems> {
        match Node::deserialize(Value::Object(self.document)) {
            Ok(node) => Rule::from_node(&node, settings),
            Err(error) => {
                let mut problems = Problems::new();
                problems.error(&Place::Nowhere, &Spot::document(), error.to_string());
                Err(problems)
            }
        }
    }

    /// Sets a key; null removes it, so that its default applies.
    fn set(mut self, key: &str, value: Value) -> Self {
        if value.is_null() {
            self.document.shift_remove(key);
        } else {
            self.document.insert(key.to_owned(), value);
        }
        self
    }

    fn insert(mut self, key: &str, name: &str, value: Value) -> Self {
        let map = self.document.entry(key).or_insert_with(|| json!({}));
        map[name] = value;
        self
    }
}

impl Match {
    /// Begins a description of requests. All parts that are given must hold; of several values of one part, any.
    pub fn builder() -> MatchBuilder {
        MatchBuilder::default()
    }
}

impl MatchBuilder {
    /// Adds a path; `*` is one segment, `**` at the end is the rest.
    pub fn path(self, pattern: &str) -> Self {
        self.add("path", pattern)
    }

    /// Adds a method.
    pub fn method(self, method: &str) -> Self {
        self.add("method", method)
    }

    /// Adds a host, without a port; `*.` is any name below.
    pub fn host(self, pattern: &str) -> Self {
        self.add("host", pattern)
    }

    /// Adds an address or a network.
    pub fn ip(self, network: &str) -> Self {
        self.add("ip", network)
    }

    /// Adds a value that this attribute may have.
    pub fn attribute(mut self, name: &str, value: &str) -> Self {
        let attributes = self.document.entry("attributes");
        if let Value::Object(attributes) = attributes.or_insert_with(|| json!({})) {
            push(attributes, name, json!(value));
        }
        self
    }

    /// A condition in CEL on `attributes` and `cost`. Needs the feature `cel`.
    pub fn when(mut self, condition: &str) -> Self {
        self.document.insert("when".to_owned(), json!(condition));
        self
    }

    fn add(mut self, key: &str, value: &str) -> Self {
        push(&mut self.document, key, json!(value));
        self
    }
}

/// A limit as a document has it: a number for concurrency, otherwise text.
fn number_or_text(limit: impl Display) -> Value {
    let text = limit.to_string();
    text.parse::<u64>()
        .map_or_else(|_| json!(text), Value::from)
}

/// Adds an item to the list under a key.
fn push(map: &mut Map<String, Value>, key: &str, item: Value) {
    let list = map.entry(key).or_insert_with(|| json!([]));
    if let Value::Array(list) = list {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{RuleSet, keys};

    const FILE: &str = "
rules:
  - id: a
    description: for people
    match: {path: /v1/**, method: [POST, PUT], host: a.example, ip: 10.0.0.0/8, attributes: {plan: [free, trial]}}
    except: [{path: /v1/health}, {attributes: {plan: none}}]
    per: [user_id, ip]
    missing: share
    limit: 100/minute
    algorithm: sliding_window_slots
    slots: 6
    strict: true
    tiers: {pro: 1000/minute}
    overrides: {u1: unlimited, u2: blocked}
    unit: bytes
    cost: {attribute: bytes}
    unsettled: give_back
    warn_at: 80
    mode: shadow
    on_store_failure: deny
    denied: {status: 403, title: Not for you, detail: '{rule}', headers: {x-help: a}}
    settle: true
    starts_at: 2026-12-01T00:00:00Z
    expires_at: 2027-01-01T00:00:00Z
  - {id: b, per: [], limit: 5/second, max_delay: 500ms, algorithm: token_bucket, cost: 3}
  - {id: c, per: [], limit: 5, algorithm: concurrency, lease_ttl: 10s, adaptive: {min: 1, max: 50, target: 200ms}}
  - {id: d, per: [ip], limit: 5/day, algorithm: fixed_window, anchor: first_request}
  - {id: e, per: [ip], limit: 5/day, algorithm: leaky_bucket, shape: false}
  - {id: f, per: [ip], limit: 5/second, candidate: 3/second, rollout: 12.5%, sync: leased}
";

    fn rules() -> Vec<RuleBuilder> {
        let only = Match::builder().path("/v1/**").method("POST").method("PUT");
        let only = only.host("a.example").ip("10.0.0.0/8");
        let only = only.attribute("plan", "free").attribute("plan", "trial");
        let slots = Algorithm::SlidingWindowSlots {
            slots: Some(6),
            strict: true,
        };
        let denied = "{status: 403, title: Not for you, detail: '{rule}', headers: {x-help: a}}";
        let denied = DenialAnswer::from_yaml(denied).unwrap();
        let max_delay = Micros::from_millis(500);
        let lease_ttl = Micros::from_seconds(10);
        let anchor = tidegate_core::Anchor::FirstRequest;
        vec![
            Rule::builder("a")
                .description("for people")
                .matching(only)
                .except(Match::builder().path("/v1/health"))
                .except(Match::builder().attribute("plan", "none"))
                .per(["user_id", "ip"])
                .missing(Missing::Share)
                .limit("100/minute")
                .algorithm(slots)
                .tier("pro", "1000/minute")
                .override_for("u1", "unlimited")
                .override_for("u2", "blocked")
                .unit("bytes")
                .cost(Cost::Attribute("bytes".to_owned()))
                .unsettled(Unsettled::GiveBack)
                .warn_at(80)
                .mode(Mode::Shadow)
                .on_store_failure(OnStoreFailure::Deny)
                .denied(&denied)
                .settle()
                .starts_at(Timestamp::from_seconds(1_796_083_200))
                .expires_at(Timestamp::from_seconds(1_798_761_600)),
            Rule::builder("b")
                .per([])
                .limit(tidegate_core::Rate::new(5, Micros::SECOND))
                .algorithm(Algorithm::TokenBucket { max_delay })
                .cost(Cost::Fixed(3)),
            Rule::builder("c")
                .per([])
                .limit(5)
                .algorithm(Algorithm::Concurrency { lease_ttl })
                .adaptive(1, 50, Some(Duration::from_millis(200))),
            Rule::builder("d")
                .per(["ip"])
                .limit("5/day")
                .algorithm(Algorithm::FixedWindow { anchor }),
            Rule::builder("e")
                .per(["ip"])
                .limit("5/day")
                .algorithm(Algorithm::LeakyBucket { shape: false }),
            Rule::builder("f")
                .per(["ip"])
                .limit("5/second")
                .candidate("3/second")
                .rollout("12.5%".parse().unwrap())
                .sync(Consistency::Leased),
        ]
    }

    #[test]
    fn what_is_built_is_what_a_file_says() {
        let built = rules().into_iter().map(|rule| rule.build().unwrap());
        let built = RuleSet::from_rules(built).unwrap();
        let read = RuleSet::from_yaml(FILE).unwrap();
        assert_eq!(built.to_json(), read.to_json());
    }

    #[test]
    fn every_key_of_a_rule_can_be_built() {
        let rules = rules();
        let is_set = |name: &str| rules.iter().any(|rule| rule.document.contains_key(name));
        for key in keys() {
            assert!(is_set(key.name), "no method sets `{}`", key.name);
        }
    }

    #[test]
    fn mistakes_are_those_of_a_file() {
        let built = Rule::builder("a").limit("5/fortnight").build();
        let read = RuleSet::from_yaml("rules: [{id: a, limit: 5/fortnight}]");
        let texts = |problems: &Problems| problems.iter().map(ToString::to_string).collect();
        let (built, read): (Vec<String>, Vec<String>) =
            (texts(&built.unwrap_err()), texts(&read.unwrap_err()));
        assert_eq!(built, read);
        assert_eq!(built.len(), 2, "{built:?}");

        let rule = || Rule::builder("a").per([]).limit("1/s").build().unwrap();
        let error = RuleSet::from_rules([rule(), rule()]).unwrap_err();
        let expected = "rule `a`, field `id`: two rules have the id `a`; give each its own";
        assert_eq!(error.errors().next().unwrap().to_string(), expected);
    }

    #[test]
    fn warnings_of_rules_are_those_of_their_set() {
        let rule = Rule::builder("a").per([]).limit("1/s").mode(Mode::Shadow);
        let rule = rule.sync(Consistency::Leased).build().unwrap();
        assert_eq!(rule.warnings().warnings().count(), 1);
        let set = RuleSet::from_rules([rule]).unwrap();
        assert_eq!(set.warnings().warnings().count(), 1);
    }

    #[test]
    #[cfg(feature = "cel")]
    fn a_condition_is_built_like_one_in_a_file() {
        let rule = Rule::builder("a").per([]).limit("1/s");
        let good = rule.clone().matching(Match::builder().when("cost > 1"));
        assert!(good.build().is_ok());
        let bad = rule.matching(Match::builder().when("cost >"));
        assert!(bad.build().unwrap_err().to_string().contains("match.when"));
    }
}
