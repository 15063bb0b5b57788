//! Reads one rule as it is written, and says everything that is wrong with it.

use std::collections::HashMap;

use tidegate_core::limit::MAX_COUNT;
use tidegate_core::{Algorithm, Scope};

use super::denied::DenialAnswer;
use super::grant::{Grant, GrantIndexes};
use super::hashed::HashedOverrides;
use super::keys::{COST, MATCH, RULE};
use super::read::id_of;
use super::read_adaptive::{self, Bounds};
use super::read_budget::Budget;
use super::read_candidate::{ReadCandidate, read_rollout};
use super::read_limit::{self, Counting};
use super::read_override::{networks_of, override_key};
use super::read_time::Validity;
use super::rule::{Consistency, Cost, Missing, Mode, OnStoreFailure, Rule, Unsettled};
use super::{RuleSettings, read_match, warnings, write};
use crate::adaptive::AdaptiveBounds;
use crate::attributes;
use crate::internal::document::{Fields, Node, Problems, Spot, Value};
use crate::value::AttributeValue;

impl Rule {
    /// The rule of a document of the form `{"id": ..., "per": [...], "limit": ...}`, or everything that is
    /// wrong with it.
    #[doc(hidden)]
    pub fn from_node(node: &Node, settings: &RuleSettings) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let read = rule(node, 0, settings, &mut problems);
        match read.filter(|_| !problems.has_errors()) {
            Some(rule) => Ok(Self {
                warnings: problems,
                ..rule
            }),
            None => Err(problems),
        }
    }

    /// Whether a new rule may have this id, or why not.
    #[doc(hidden)]
    pub fn check_id(id: &str) -> Result<(), String> {
        checked_id(id).map(drop)
    }
}

/// Reads one rule. Adds its problems to `problems`; the rule must not be used if there are any.
pub(super) fn rule(
    node: &Node,
    index: usize,
    settings: &RuleSettings,
    problems: &mut Problems,
) -> Option<Rule> {
    let spot = spot_of(node, index);
    let before = problems.error_count();
    let mut fields = Fields::new(node, spot.clone(), &RULE, problems)?;
    refuse_misplaced(&mut fields, problems);
    let counting = Counting::read(&fields, problems);
    // A merge key may have provided the missing keys.
    if fields.key("<<").is_none() {
        require(&fields, node, problems);
    }
    fields.done(problems);

    let id = fields
        .take("id")
        .and_then(|(spot, node)| read_id(node, &spot, problems));
    let description = fields.text("description", problems);
    let matches = fields
        .take("match")
        .map(|(spot, node)| read_match::read_match(node, spot, problems));
    let except = fields
        .take("except")
        .map(|(spot, node)| read_match::read_except(node, &spot, problems));
    let per = fields
        .take("per")
        .and_then(|(spot, node)| read_per(node, &spot, problems));
    let missing = chosen(fields.take("missing"), &MISSING, problems);
    let mut grants = Grants::new(&counting, problems);
    grants.add_limit(fields.take("limit"));
    let tiers = grants.add_named(fields.take("tiers"), tier_name);
    let overrides = grants.add_named(fields.take("overrides"), |value| {
        override_key(per.as_deref(), value, settings)
    });
    let grants = grants.all;
    counting.check_use(&grants, problems);
    let cost = fields
        .take("cost")
        .and_then(|(spot, node)| read_cost(node, &spot, problems));
    let mode = chosen(fields.take("mode"), &MODES, problems);
    let on_store_failure = chosen(fields.take("on_store_failure"), &ON_STORE_FAILURE, problems);
    let denied = read_denied(fields.take("denied"), problems);
    let sync = read_sync(fields.take("sync"), &grants, &counting, problems);
    let settles = read_settle(fields.take("settle"), &counting, problems);
    let budget = Budget::read(&fields, &counting, sync, problems);
    let validity = Validity::read(
        fields.take("starts_at"),
        fields.take("expires_at"),
        problems,
    );
    let candidate = ReadCandidate::read(&fields, (node, index), settings, problems);
    let rollout = read_rollout(fields.take("rollout"), (per.as_deref(), mode), problems);
    if problems.error_count() > before {
        return None;
    }
    let (id, per) = (id?, per.unwrap_or_default());
    let scope = counted_as(scope_of(&id, &per, settings), (sync, mode), &budget);
    let adaptive = counting.adaptive.and_then(|bounds| moving(bounds, &grants));
    let rule = Rule {
        scope,
        id,
        description: description.map(str::to_owned),
        matches: matches.unwrap_or_default(),
        except: except.unwrap_or_default(),
        override_networks: networks_of(&per, &overrides, settings.ipv6_prefix),
        per,
        missing,
        grants,
        tiers,
        hashed_overrides: HashedOverrides::of(overrides.keys()),
        overrides,
        candidate: candidate.rule.clone(),
        rollout,
        algorithm: counting.algorithm,
        max_delay: counting.max_delay,
        unit: budget.unit,
        cost: cost.unwrap_or(Cost::Fixed(1)),
        unsettled: budget.unsettled,
        warn_at: budget.warn_at,
        mode,
        on_store_failure,
        denied,
        sync,
        settles,
        starts_at: validity.starts_at,
        expires_at: validity.expires_at,
        ipv6_prefix: settings.ipv6_prefix,
        written: write::as_written(node),
        adaptive,
        ..Rule::granting(Grant::Blocked)
    };
    let reader = warnings::RuleInspector {
        rule: &rule,
        node,
        spot: &spot,
    };
    reader.warn(settings, problems);
    candidate.warn(&rule, &spot, problems);
    Some(rule)
}

/// Reports keys that belong elsewhere.
fn refuse_misplaced(fields: &mut Fields<'_>, problems: &mut Problems) {
    let burst =
        "a burst goes with the limit that it belongs to; write `limit: 100/minute burst 20`";
    fields.refuse("burst", burst, problems);
    let exempt =
        "`exempt` is for all rules and stands next to `rules:`; in one rule it is called `except`";
    fields.refuse("exempt", exempt, problems);
    for row in &MATCH {
        fields.refuse(row.name, "this belongs below `match:`; indent it", problems);
    }
}

/// Where problems of a rule are reported: by its id, or by its index if it has none.
fn spot_of(node: &Node, index: usize) -> Spot {
    match id_of(node) {
        Some((id, _)) if is_id(id) => Spot::rule_with_id(id),
        _ => Spot::document().field("rules").item(index),
    }
}

fn read_denied(taken: Taken<'_>, problems: &mut Problems) -> Option<Box<DenialAnswer>> {
    let (spot, node) = taken?;
    DenialAnswer::read(node, spot, problems).map(Box::new)
}

fn read_sync(
    taken: Taken<'_>,
    grants: &[Grant],
    counting: &Counting,
    problems: &mut Problems,
) -> Consistency {
    let sync = chosen(taken.clone(), &SYNCS, problems);
    if let (Consistency::Leased, Some((spot, node))) = (sync, taken)
        && let Some(why_not) =
            read_limit::why_not_leased(grants).or_else(|| counting.adaptive.map(|_| "`adaptive`"))
    {
        let message = format!("`leased` does not go with {why_not}; write `sync: exact`");
        problems.error(&node.place, &spot, message);
    }
    sync
}

pub(super) const MISSING: [(&str, Missing); 3] = [
    ("skip", Missing::Skip),
    ("share", Missing::Share),
    ("deny", Missing::Deny),
];
pub(super) const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)];
pub(super) const ON_STORE_FAILURE: [(&str, OnStoreFailure); 3] = [
    ("allow", OnStoreFailure::Allow),
    ("deny", OnStoreFailure::Deny),
    ("local", OnStoreFailure::Local),
];
/// A descriptor limit may also fail the call of Envoy.
pub(super) const ON_STORE_FAILURE_OF_DESCRIPTOR: [(&str, OnStoreFailure); 4] = [
    ("allow", OnStoreFailure::Allow),
    ("deny", OnStoreFailure::Deny),
    ("local", OnStoreFailure::Local),
    ("error", OnStoreFailure::Error),
];
pub(super) const SYNCS: [(&str, Consistency); 2] = [
    ("exact", Consistency::Exact),
    ("leased", Consistency::Leased),
];

pub(super) type Taken<'n> = Option<(Spot, &'n Node)>;

/// Reports which of the keys that every rule needs are not there, or have no value.
fn require(fields: &Fields<'_>, node: &Node, problems: &mut Problems) {
    let required = [
        (
            "id",
            "give the rule a name of its own, for example `id: per-user`",
        ),
        (
            "per",
            "say who is counted, for example `per: [user_id]`, or `per: []` for one counter for all",
        ),
        ("limit", "give one, for example `limit: 100/minute`"),
    ];
    // An adaptive limit finds its way by itself.
    let is_adaptive = fields.key("adaptive").is_some();
    for (key, advice) in required {
        let is_there = fields.take(key).is_some();
        if is_there || (key == "limit" && is_adaptive && fields.key(key).is_none()) {
            continue;
        }
        // The misspelt key is reported.
        if fields.key(key).is_none() && fields.is_misspelt(key) {
            continue;
        }
        let (place, what) = match fields.key(key) {
            Some(entry) => (&entry.key_place, "has no value"),
            None => (&node.place, "is missing"),
        };
        let message = format!("the key `{key}` {what}; {advice}");
        problems.error(place, &fields.spot().field(key), message);
    }
}

/// Which of these words a key says; the default if it is not there.
pub(super) fn chosen<T: Copy + Default>(
    taken: Taken<'_>,
    words: &[(&str, T)],
    problems: &mut Problems,
) -> T {
    let said = taken.and_then(|(spot, node)| spot.one_of(node, words, problems));
    said.unwrap_or_default()
}

/// The grants of a rule: its limit first, then those of its tiers and overrides.
struct Grants<'c> {
    all: Vec<Grant>,
    counting: &'c Counting,
    problems: &'c mut Problems,
}

impl<'c> Grants<'c> {
    fn new(counting: &'c Counting, problems: &'c mut Problems) -> Self {
        Self {
            all: Vec::new(),
            counting,
            problems,
        }
    }

    fn add_limit(&mut self, limit: Taken<'_>) {
        let grant = match limit {
            Some((spot, node)) => self.read_limit(node, &spot),
            None => read_adaptive::start(self.counting),
        };
        // Without one there is an error, and the rule is of no use.
        self.all.push(grant.unwrap_or(Grant::Blocked));
    }

    fn read_limit(&mut self, node: &Node, spot: &Spot) -> Option<Grant> {
        let grant = read_limit::grant(node, spot, self.counting, self.problems)?;
        let Some(bounds) = &self.counting.adaptive else {
            return Some(grant);
        };
        match read_adaptive::started(bounds, &grant, self.counting) {
            Ok(started) => Some(started),
            Err(wrong) => spot.refused(node, wrong, self.problems),
        }
    }

    fn add_named(
        &mut self,
        map: Taken<'_>,
        name_of: impl Fn(&str) -> Result<String, String>,
    ) -> GrantIndexes {
        let mut named = GrantIndexes::default();
        let Some((spot, node)) = map else {
            return named;
        };
        let mut written: HashMap<String, &str> = HashMap::new();
        for entry in spot.entries(node, self.problems) {
            let spot = spot.field(&entry.key);
            let name = match name_of(&entry.key) {
                Ok(name) => name,
                Err(message) => {
                    self.problems.error(&entry.key_place, &spot, message);
                    continue;
                }
            };
            let grant = read_limit::grant(&entry.value, &spot, self.counting, self.problems);
            match written.get(&name) {
                // That it is there twice is said already.
                Some(earlier) if *earlier == entry.key => {}
                Some(earlier) => {
                    let message =
                        format!("`{}` means the same as `{earlier}`; keep one", entry.key);
                    self.problems.error(&entry.key_place, &spot, message);
                }
                None => {
                    written.insert(name.clone(), &entry.key);
                }
            }
            if let Some(grant) = grant {
                let wrong = read_adaptive::wrong_exception(&grant);
                if let (Some(_), Some(wrong)) = (self.counting.adaptive, wrong) {
                    self.problems.error(&entry.value.place, &spot, wrong);
                }
                named.insert(name, self.all.len());
                self.all.push(grant);
            }
        }
        named
    }
}

/// The scope of a rule's counters. It includes the attributes of `per`, so that a rule with another `per` begins with
/// new counters.
fn scope_of(id: &str, per: &[String], settings: &RuleSettings) -> Scope {
    let name = per
        .iter()
        .fold(id.to_owned(), |scope, name| scope + "@" + name);
    let scope = Scope::new(&name);
    if per.iter().any(|name| settings.is_secret(name)) {
        scope.with_secret_keys()
    } else {
        scope
    }
}

/// The scope of counters that instances share in this way.
fn counted_as(mut scope: Scope, (sync, mode): (Consistency, Mode), budget: &Budget) -> Scope {
    // Shadow rules gain nothing from leases.
    if sync == Consistency::Leased && mode == Mode::Enforce {
        scope = scope.leased();
    }
    if budget.unsettled == Unsettled::GiveBack {
        scope = scope.giving_back();
    }
    scope
}

/// The limit of a rule that moves by itself.
fn moving(bounds: Bounds, grants: &[Grant]) -> Option<AdaptiveBounds> {
    let Some(Grant::Limits(limits)) = grants.first() else {
        return None;
    };
    let start = limits.first()?.clone();
    Some(AdaptiveBounds::new(bounds.settings, start))
}

fn tier_name(name: &str) -> Result<String, String> {
    match name {
        "" => Err("the name of a tier cannot be empty".into()),
        _ => Ok(AttributeValue::from(name).into_form().into_owned()),
    }
}

/// The id of a rule.
fn read_id(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<String> {
    let id = spot.parsed(node, checked_id, problems)?;
    if RESERVED.contains(&id.as_str()) {
        let message = format!(
            "`{id}` cannot be the id of a rule, because it is a call of the API; choose another"
        );
        return spot.refused(node, message, problems);
    }
    Some(id)
}

/// Calls of the API below `/v1/rules/`.
pub(super) const RESERVED: [&str; 3] = ["history", "rollback", "diff"];

fn is_id(id: &str) -> bool {
    checked_id(id).is_ok()
}

fn checked_id(id: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let begins = id
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !begins || id.len() > 64 || !id.bytes().all(fits) {
        return Err(format!(
            "`{id}` cannot be the id of a rule; use 1 to 64 letters, digits, `.`, `_` and `-`, beginning with a letter or a digit"
        ));
    }
    Ok(id.to_owned())
}

/// The attributes that make the key, if all of them can be read.
fn read_per(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<Vec<String>> {
    let before = problems.error_count();
    let mut per: Vec<String> = Vec::new();
    for (spot, node) in spot.items(node, problems) {
        let Some(name) = spot.parsed(node, attribute_name, problems) else {
            continue;
        };
        if per.contains(&name) {
            problems.error(
                &node.place,
                &spot,
                format!("`{name}` is there twice; keep one"),
            );
        }
        per.push(name);
    }
    (problems.error_count() == before).then_some(per)
}

/// The name of an attribute as a rule may write it.
pub(super) fn attribute_name(name: &str) -> Result<String, String> {
    attributes::check_name(name).map_err(|error| error.to_string())?;
    if name.starts_with("header.") && name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(format!(
            "the names of headers are lower-case here; write `{}`",
            name.to_ascii_lowercase()
        ));
    }
    Ok(name.to_owned())
}

fn read_cost(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<Cost> {
    if !matches!(node.value, Value::Map(_)) {
        return spot.integer(node, 1, MAX_COUNT, problems).map(Cost::Fixed);
    }
    let fields = Fields::new(node, spot.clone(), &COST, problems)?;
    let attribute = fields.take("attribute");
    let all_known = fields.done(problems);
    let Some((spot, node)) = attribute else {
        if !all_known {
            return None;
        }
        let message = "write a whole number, or `{attribute: bytes}` with the name of an attribute";
        return spot.refused(node, message, problems);
    };
    let name = spot.parsed(node, attribute_name, problems)?;
    Some(Cost::Attribute(name))
}

/// Whether a rule settles. A concurrency limit counts requests in progress, of which none is left to
/// count once its cost is known.
fn read_settle(taken: Taken<'_>, counting: &Counting, problems: &mut Problems) -> bool {
    let Some((spot, node)) = taken else {
        return false;
    };
    let settles = spot.boolean(node, problems).unwrap_or(false);
    if settles && matches!(counting.algorithm, Some(Algorithm::Concurrency { .. })) {
        let message =
            "`settle` does not go with `concurrency`, which counts requests in progress; remove it";
        problems.error(&node.place, &spot, message);
    }
    settles
}
