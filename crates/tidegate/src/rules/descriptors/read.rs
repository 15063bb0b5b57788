//! Reads descriptors as they are written, and says everything that is wrong with them.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidegate_core::limit::MAX_COUNT;
use tidegate_core::{Algorithm, Limit, Micros, Rate, Scope, Window};

use super::descriptor::{Descriptor, Step, Wanted};
use super::identity::id_of;
use super::tree::{Branch, Descriptors, Level};
use super::wildcard::Wildcard;
use crate::document::{Fields, Node, Place, Problems, Spot, Value};
use crate::rules::read_limit::{self, Counting};
use crate::rules::read_rule::{ON_STORE_FAILURE, SYNCS, chosen};
use crate::rules::rule::{Grant, Mode, OnStoreFailure, Rule, Sync};
use crate::rules::{RuleSet, RuleSettings, write};

/// The units of time that a limit may have.
const UNITS: [(&str, Window); 7] = [
    ("second", Window::Span(Micros::SECOND)),
    ("minute", Window::Span(Micros::MINUTE)),
    ("hour", Window::Span(Micros::HOUR)),
    ("day", Window::Span(Micros::DAY)),
    ("week", Window::Span(Micros::WEEK)),
    ("month", Window::Month),
    ("year", Window::Year),
];

/// Whether the first document is of this form.
pub(in crate::rules) fn are_written(documents: &[Node]) -> bool {
    let Some(Value::Map(entries)) = documents.first().map(|node| &node.value) else {
        return false;
    };
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    !has("rules") && (has("domain") || has("descriptors"))
}

/// The rules of these documents, each a domain; nothing if there is an error.
pub(in crate::rules) fn read(
    documents: &[Node],
    settings: &RuleSettings,
    problems: &mut Problems,
) -> Option<RuleSet> {
    let written = documents.iter().map(write::as_written).collect();
    let mut reader = Reader {
        settings,
        problems,
        rules: Vec::new(),
        places: HashMap::new(),
    };
    let mut descriptors = Descriptors::new(written);
    for node in documents {
        reader.domain(node, &mut descriptors);
    }
    let rules = reader.rules;
    if problems.has_errors() {
        return None;
    }
    Some(RuleSet::by_descriptors(rules, descriptors))
}

struct Reader<'p> {
    settings: &'p RuleSettings,
    problems: &'p mut Problems,
    rules: Vec<Arc<Rule>>,
    /// Where the rule with an id stands.
    places: HashMap<String, Place>,
}

/// What a descriptor says, but for its limit and what is below.
struct Modes {
    is_shadow: bool,
    is_quota: bool,
}

/// What a `rate_limit` says.
struct RateLimit {
    grant: Grant,
    name: String,
    replaces: Vec<String>,
}

/// What a block `tidegate` says.
#[derive(Default)]
struct Own {
    algorithm: Option<Algorithm>,
    max_delay: Option<Micros>,
    on_store_failure: OnStoreFailure,
    sync: Sync,
}

impl Reader<'_> {
    fn domain(&mut self, node: &Node, descriptors: &mut Descriptors) -> Option<()> {
        let document = Spot::document();
        let mut fields = Fields::of(node, document.clone(), self.problems)?;
        let domain = fields.take("domain");
        let below = fields.take("descriptors");
        fields.done(self.problems);
        let Some((spot, domain_node)) = domain else {
            let message = "the key `domain` is missing; give the domain that Envoy's filter names";
            self.problems
                .error(&node.place, &document.field("domain"), message);
            return None;
        };
        let domain = spot.text(domain_node, self.problems)?;
        if domain.is_empty() {
            let message = "a domain cannot be empty; give the one that Envoy's filter names";
            self.problems.error(&domain_node.place, &spot, message);
            return None;
        }
        let level = self.level(below, domain, &mut Vec::new());
        if !descriptors.add(domain, level) {
            let message =
                format!("the domain `{domain}` is there twice; put its descriptors together");
            self.problems.error(&domain_node.place, &spot, message);
        }
        Some(())
    }

    /// The descriptors of a list.
    fn level(&mut self, list: Option<(Spot, &Node)>, domain: &str, steps: &mut Vec<Step>) -> Level {
        let mut level = Level::default();
        let Some((spot, node)) = list else {
            return level;
        };
        let Value::List(items) = &node.value else {
            let message = format!(
                "this must be a list of descriptors, each beginning with `- key:`, not {}",
                node.kind()
            );
            self.problems.error(&node.place, &spot, message);
            return level;
        };
        for (index, item) in items.iter().enumerate() {
            self.descriptor(item, &spot.item(index), domain, steps, &mut level);
        }
        level
    }

    fn descriptor(
        &mut self,
        node: &Node,
        spot: &Spot,
        domain: &str,
        steps: &mut Vec<Step>,
        level: &mut Level,
    ) -> Option<()> {
        let mut fields = Fields::of(node, spot.clone(), self.problems)?;
        let (key, value) = (fields.take("key"), fields.take("value"));
        let rate_limit = fields.take("rate_limit");
        let below = fields.take("descriptors");
        let own = fields.take("tidegate");
        let is_shared = self.flag(&mut fields, "share_threshold");
        let modes = Modes {
            is_shadow: self.flag(&mut fields, "shadow_mode").0,
            is_quota: self.flag(&mut fields, "quota_mode").0,
        };
        // These say only how metrics of the other service are called.
        self.flag(&mut fields, "detailed_metric");
        self.flag(&mut fields, "value_to_metric");
        if let Some((spot, node)) = fields.take("metadata") {
            spot.entries(node, self.problems);
        }
        fields.done(self.problems);

        let step = self.step(node, spot, key, value, is_shared);
        let Some(step) = step else {
            // What is below may be wrong, too.
            steps.push(Step {
                key: String::new(),
                wanted: Wanted::Any,
            });
            self.level(below, domain, steps);
            steps.pop();
            return None;
        };
        steps.push(step.clone());
        let rule =
            rate_limit.and_then(|limit| self.rule(&limit, own.as_ref(), &modes, domain, steps));
        if let (None, Some((spot, node))) = (&rate_limit_of(node), own) {
            let message = "this says how a limit is counted, and there is none; add a `rate_limit`, or remove it";
            self.problems.error(&node.place, &spot, message);
        }
        let below = self.level(below, domain, steps);
        steps.pop();
        if !level.add(&step, Branch { rule, below }) {
            let message = "there is the same descriptor before; put the two together";
            self.problems.error(&node.place, spot, message);
        }
        Some(())
    }

    /// A key that says `true` or `false`; also where it stands, if it is there.
    fn flag<'n>(
        &mut self,
        fields: &mut Fields<'n>,
        key: &'static str,
    ) -> (bool, Option<(Spot, &'n Node)>) {
        let taken = fields.take(key);
        let said = taken
            .as_ref()
            .and_then(|(spot, node)| spot.boolean(node, self.problems));
        (said.unwrap_or(false), taken)
    }

    fn step(
        &mut self,
        node: &Node,
        spot: &Spot,
        key: Option<(Spot, &Node)>,
        value: Option<(Spot, &Node)>,
        (is_shared, shared_at): (bool, Option<(Spot, &Node)>),
    ) -> Option<Step> {
        let Some((key_spot, key_node)) = key else {
            let message = "the key `key` is missing; give the key of the entries that are meant";
            self.problems
                .error(&node.place, &spot.field("key"), message);
            return None;
        };
        let key = key_spot.text(key_node, self.problems)?;
        if key.is_empty() {
            let message = "this cannot be empty; give the key of the entries that are meant";
            self.problems.error(&key_node.place, &key_spot, message);
            return None;
        }
        let value = match value {
            Some((spot, node)) => spot.text(node, self.problems)?,
            None => "",
        };
        let wanted = match Wildcard::parse(value) {
            Some(wildcard) => Wanted::Fitting {
                wildcard,
                is_shared,
            },
            None if value.is_empty() => Wanted::Any,
            None => Wanted::Text(value.to_owned()),
        };
        if let (true, Some((spot, node))) = (is_shared, shared_at)
            && !matches!(wanted, Wanted::Fitting { .. })
        {
            let message = "values can share a counter only where the `value` has a `*` for them";
            self.problems.error(&node.place, &spot, message);
            return None;
        }
        Some(Step {
            key: key.to_owned(),
            wanted,
        })
    }

    /// Makes a rule of a limit. Its place.
    fn rule(
        &mut self,
        (spot, node): &(Spot, &Node),
        own: Option<&(Spot, &Node)>,
        modes: &Modes,
        domain: &str,
        steps: &[Step],
    ) -> Option<u32> {
        let before = self.problems.error_count();
        let limit = self.rate_limit(node, spot, own);
        if self.problems.error_count() > before {
            return None;
        }
        let (limit, own) = limit?;
        let id = id_of(domain, steps);
        if self.places.insert(id.clone(), node.place.clone()).is_some() {
            let message = format!(
                "this limit and another would both be the rule `{id}`; change a value or a key"
            );
            self.problems.error(&node.place, spot, message);
            return None;
        }
        let counted_by = steps.iter().filter(|step| step.wanted.is_counted_by());
        let per: Vec<String> = counted_by.map(|step| step.key.clone()).collect();
        let scope = per
            .iter()
            .fold(id.clone(), |scope, name| format!("{scope}@{name}"));
        let mut scope = Scope::new(&scope);
        if per.iter().any(|name| self.settings.is_secret(name)) {
            scope = scope.with_secret_keys();
        }
        let mode = if modes.is_shadow {
            Mode::Shadow
        } else {
            Mode::Enforce
        };
        if own.sync == Sync::Leased && mode == Mode::Enforce {
            scope = scope.leased();
        }
        let has_limit = matches!(limit.grant, Grant::Limits(_));
        let algorithm = own.algorithm.unwrap_or(Algorithm::FIXED_WINDOW);
        let mut rule = Rule {
            id,
            scope,
            per,
            mode,
            algorithm: has_limit.then_some(algorithm),
            max_delay: own.max_delay,
            on_store_failure: own.on_store_failure,
            sync: own.sync,
            ipv6_prefix: self.settings.ipv6_prefix,
            descriptor: Some(Box::new(Descriptor {
                domain: domain.to_owned(),
                steps: steps.to_vec(),
                name: limit.name,
                replaces: limit.replaces,
                is_quota: modes.is_quota,
            })),
            ..Rule::granting(limit.grant)
        };
        rule.written = written(&rule, domain, steps, modes, node);
        self.rules.push(Arc::new(rule));
        u32::try_from(self.rules.len() - 1).ok()
    }

    fn rate_limit(
        &mut self,
        node: &Node,
        spot: &Spot,
        own: Option<&(Spot, &Node)>,
    ) -> Option<(RateLimit, Own)> {
        let mut fields = Fields::of(node, spot.clone(), self.problems)?;
        let (unit, count) = (fields.take("unit"), fields.take("requests_per_unit"));
        let is_unlimited = self.flag(&mut fields, "unlimited").0;
        let (name, replaces) = (fields.take("name"), fields.take("replaces"));
        let all_known = fields.done(self.problems);
        let name = name.and_then(|(spot, node)| spot.text(node, self.problems));
        let name = name.unwrap_or_default().to_owned();
        let replaces = self.replaces(replaces, &name);
        if is_unlimited {
            for (spot, node) in [&unit, &count].into_iter().flatten() {
                let message = "what is unlimited has no limit; remove this, or `unlimited`";
                self.problems.error(&node.place, spot, message);
            }
            let grant = Grant::Unlimited;
            let limit = RateLimit {
                grant,
                name,
                replaces,
            };
            return Some((limit, Own::default()));
        }
        for (taken, key, advice) in [
            (&unit, "unit", "write for example `unit: minute`"),
            (
                &count,
                "requests_per_unit",
                "give a number, or write `unlimited: true`",
            ),
        ] {
            if taken.is_none() && all_known {
                let message = format!("the key `{key}` is missing; {advice}");
                self.problems.error(&node.place, &spot.field(key), message);
            }
        }
        let window = unit.and_then(|(spot, node)| spot.parsed(node, read_unit, self.problems));
        let count = count.and_then(|(spot, node)| self.count(&spot, node));
        let (own, counting, burst) = self.own(own);
        let (window, count) = (window?, count?);
        let grant = if count == 0 {
            Grant::Blocked
        } else {
            let algorithm = own.algorithm.unwrap_or(Algorithm::FIXED_WINDOW);
            let is_concurrency = matches!(algorithm, Algorithm::Concurrency { .. });
            let window = (!is_concurrency).then_some(window);
            let rate = Rate {
                count,
                window,
                burst,
            };
            match (Limit::new(rate, algorithm), &counting) {
                (Ok(limit), _) => Grant::Limits(vec![limit]),
                (Err(error), Some(counting)) => {
                    counting.refuse(&error, node, spot, self.problems);
                    return None;
                }
                (Err(error), None) => {
                    self.problems.error(&node.place, spot, error.to_string());
                    return None;
                }
            }
        };
        let limit = RateLimit {
            grant,
            name,
            replaces,
        };
        Some((limit, own))
    }

    /// How many requests are granted. More than can be counted is told, and cut: nobody sends as many.
    fn count(&mut self, spot: &Spot, node: &Node) -> Option<u64> {
        let count = spot.integer(node, 0, u64::from(u32::MAX), self.problems)?;
        if count > MAX_COUNT {
            let message = format!(
                "more than {MAX_COUNT} requests cannot be counted, so this is {MAX_COUNT}; for no limit, write `unlimited: true`"
            );
            self.problems.warning(&node.place, spot, message);
        }
        Some(count.min(MAX_COUNT))
    }

    fn replaces(&mut self, list: Option<(Spot, &Node)>, name: &str) -> Vec<String> {
        let Some((spot, node)) = list else {
            return Vec::new();
        };
        let mut replaced = Vec::new();
        for (spot, node) in spot.items(node, self.problems) {
            let Some(mut fields) = Fields::of(node, spot.clone(), self.problems) else {
                continue;
            };
            let other = fields.take("name");
            fields.done(self.problems);
            let other = other.and_then(|(spot, node)| spot.text(node, self.problems));
            match other {
                None | Some("") => {
                    let message = "give the name of the limit that is replaced: `{name: other}`";
                    self.problems.error(&node.place, &spot, message);
                }
                Some(other) if other == name => {
                    let message = "a limit cannot replace itself; give the name of another";
                    self.problems.error(&node.place, &spot, message);
                }
                Some(other) => replaced.push(other.to_owned()),
            }
        }
        replaced
    }

    /// Which of our algorithms counts, and what else only we know.
    fn own(&mut self, own: Option<&(Spot, &Node)>) -> (Own, Option<Counting>, Option<u64>) {
        let nothing = || (Own::default(), None, None);
        let Some((spot, node)) = own else {
            return nothing();
        };
        let Some(mut fields) = Fields::of(node, spot.clone(), self.problems) else {
            return nothing();
        };
        let is_chosen = fields.key("algorithm").is_some();
        if !is_chosen {
            let options = [
                "burst",
                "anchor",
                "slots",
                "strict",
                "shape",
                "max_delay",
                "lease_ttl",
            ];
            for option in options {
                let message = "this is an option of an `algorithm`; say which, for example `algorithm: token_bucket`";
                fields.refuse(option, message, self.problems);
            }
        }
        let counting = Counting::read(&mut fields, self.problems);
        let (burst, on_failure) = (fields.take("burst"), fields.take("on_store_failure"));
        let sync_at = fields.take("sync");
        fields.done(self.problems);
        let burst = burst.filter(|_| is_chosen);
        let burst = burst.and_then(|(spot, node)| spot.integer(node, 1, MAX_COUNT, self.problems));
        let own = Own {
            algorithm: counting.algorithm,
            max_delay: counting.max_delay,
            on_store_failure: chosen(on_failure, &ON_STORE_FAILURE, self.problems),
            sync: chosen(sync_at.clone(), &SYNCS, self.problems),
        };
        if let (Sync::Leased, Some((spot, node)), Some(algorithm)) =
            (own.sync, sync_at, own.algorithm)
            && let Some(why_not) = read_limit::why_not(algorithm)
        {
            let message = format!("`leased` does not go with {why_not}; write `sync: exact`");
            self.problems.error(&node.place, &spot, message);
        }
        (own, Some(counting), burst)
    }
}

fn rate_limit_of(node: &Node) -> Option<&Node> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let entry = entries.iter().find(|entry| entry.key == "rate_limit");
    entry.map(|entry| &entry.value)
}

fn read_unit(text: &str) -> Result<Window, String> {
    let lower = text.to_ascii_lowercase();
    let unit = UNITS.iter().find(|(name, _)| *name == lower);
    unit.map(|(_, window)| *window).ok_or_else(|| {
        let names: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
        let suggestion = crate::document::suggestion(&lower, &names);
        format!("`{text}` is not a unit{suggestion}; write one of `second`, `minute`, `hour`, `day`, `week`, `month` and `year`")
    })
}

/// The rule as JSON, for those who look at the rules: like any other, and where it stands in the file.
fn written(rule: &Rule, domain: &str, steps: &[Step], modes: &Modes, limit: &Node) -> Json {
    let Json::Object(mut written) = rule.to_json() else {
        return Json::Null;
    };
    let step = |step: &Step| match &step.wanted {
        Wanted::Any => json!({"key": step.key}),
        Wanted::Text(text) => json!({"key": step.key, "value": text}),
        Wanted::Fitting { wildcard, .. } => json!({"key": step.key, "value": wildcard.to_string()}),
    };
    let way: Vec<Json> = steps.iter().map(step).collect();
    written.insert("domain".to_owned(), json!(domain));
    written.insert("descriptor".to_owned(), Json::Array(way));
    written.insert("rate_limit".to_owned(), write::as_written(limit));
    if modes.is_quota {
        written.insert("quota_mode".to_owned(), json!(true));
    }
    Json::Object(written)
}
