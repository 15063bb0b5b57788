//! Rules: what operators write, validated, and found fast.
//!
//! [`read`](RuleSet::read) makes a [`RuleSet`] of a file, [`from_node`](RuleSet::from_node) of a JSON
//! body, [`to_json`](RuleSet::to_json) writes it down again. How a rule is found is in `index.rs`,
//! what it says about a request in `rule.rs`.

mod client_written;
mod condition;
mod counts;
mod descriptors;
mod hashed;
mod index;
mod keys;
mod matching;
mod networks;
mod pattern;
mod read;
mod read_adaptive;
mod read_limit;
mod read_match;
mod read_override;
mod read_rule;
mod read_time;
mod regexes;
mod rule;
mod schema;
mod shares;
mod warnings;
mod work;
mod write;

pub use condition::Condition;
pub(crate) use condition::Facts;
pub(crate) use counts::add_one;
pub use counts::{FrontEnd, RuleCounts, Verdict};
pub use matching::Match;
pub use pattern::{HostPattern, PathPattern};
pub use rule::{Cost, Grant, Missing, Mode, OnStoreFailure, Rule, Sync};
pub(crate) use rule::{Key, MissingNames};
pub use schema::{api_schemas, keys, schema};
pub(crate) use shares::{Share, Shares};

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use descriptors::Descriptors;
use foldhash::fast::RandomState;
use index::Index;
use smallvec::SmallVec;
use tidegate_core::{Clock, Timestamp};

use crate::attributes::Attributes;
use crate::document::{self, Node, Problems, Source};

/// Settings of the server that rules are read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSettings {
    /// How many bits of an IPv6 address make the key of `per: [ip]`.
    pub ipv6_prefix: u8,
    /// The attributes whose values must not be readable in a store, beside `api_key`.
    pub secret_attributes: Vec<String>,
    /// The current time, to warn about rules that have expired. None: no such warning.
    pub now: Option<Timestamp>,
    /// Whether the rules were accepted before, perhaps by an earlier version: what is refused only since
    /// then is a warning.
    pub are_stored: bool,
}

impl Default for RuleSettings {
    fn default() -> Self {
        Self {
            ipv6_prefix: 64,
            secret_attributes: Vec::new(),
            now: None,
            are_stored: false,
        }
    }
}

impl RuleSettings {
    /// The same settings, for rules that are read at `now`.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Self {
            now: Some(now),
            ..self.clone()
        }
    }

    /// The same settings, for rules that were accepted before.
    #[must_use]
    pub fn for_stored(&self) -> Self {
        Self {
            are_stored: true,
            ..self.clone()
        }
    }

    /// Whether the values of this attribute must not be readable in a store.
    fn is_secret(&self, attribute: &str) -> bool {
        let mut secret = self.secret_attributes.iter();
        attribute == "api_key" || secret.any(|name| name == attribute)
    }
}

/// The rules in force, in their order.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Arc<Rule>>,
    by_id: HashMap<String, usize, RandomState>,
    index: Index,
    /// The attributes `header.*` that any of them asks about.
    headers: Vec<String>,
    /// Whether any of them asks for the host of a request.
    reads_host: bool,
    /// The shares that were last asked for.
    shares: ArcSwapOption<Shares>,
    /// How rules are found that are written as descriptors. Then only by these.
    descriptors: Option<Descriptors>,
}

impl RuleSet {
    /// No rules: everything is allowed.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The rules of a YAML or JSON file. Nothing if any of them is wrong; all problems are told.
    ///
    /// ```
    /// use tidegate::rules::{RuleSet, RuleSettings};
    /// use tidegate::document::Source;
    ///
    /// let source = Source::new("rules.yaml", "
    /// rules:
    ///   - id: per-user
    ///     per: [user_id]
    ///     limit: 100/fortnight
    /// ");
    /// let (rules, problems) = RuleSet::read(&source, &RuleSettings::default());
    /// assert!(rules.is_none());
    /// assert!(problems.render(&source).contains("error: rules.yaml:5:12: rule `per-user`, field `limit`:"));
    /// ```
    pub fn read(source: &Source, settings: &RuleSettings) -> (Option<Self>, Problems) {
        let mut problems = Problems::new();
        let Some(documents) = source.read_all(&mut problems) else {
            return (None, problems);
        };
        let rules = if descriptors::are_written(&documents) {
            descriptors::read(&documents, settings, &mut problems)
        } else {
            let node = document::only(&documents, &mut problems);
            let rules = node.and_then(|node| read::rules(node, settings, &mut problems));
            rules.map(Self::new)
        };
        problems.sort();
        (rules, problems)
    }

    /// The rules of a document that was read already, of the form `{"rules": [...]}`.
    pub fn from_node(node: &Node, settings: &RuleSettings) -> (Option<Self>, Problems) {
        let mut problems = Problems::new();
        let rules = read::rules(node, settings, &mut problems);
        (rules.map(Self::new), problems)
    }

    /// One rule of a document that was read already.
    pub fn rule_from_node(node: &Node, settings: &RuleSettings) -> (Option<Rule>, Problems) {
        let mut problems = Problems::new();
        let rule = read_rule::rule(node, 0, settings, &mut problems);
        (rule.filter(|_| !problems.has_errors()), problems)
    }

    /// These rules, whose ids are distinct.
    pub fn new(rules: Vec<Arc<Rule>>) -> Self {
        let by_id = places(&rules);
        let index = Index::of(&rules);
        let headers: BTreeSet<&str> = rules.iter().flat_map(|rule| rule.headers()).collect();
        let headers = headers.into_iter().map(str::to_owned).collect();
        Self {
            reads_host: rules.iter().any(|rule| rule.reads_host()),
            rules,
            by_id,
            index,
            headers,
            shares: ArcSwapOption::empty(),
            descriptors: None,
        }
    }

    /// These rules, found by descriptors.
    fn by_descriptors(rules: Vec<Arc<Rule>>, descriptors: Descriptors) -> Self {
        Self {
            by_id: places(&rules),
            rules,
            descriptors: Some(descriptors),
            ..Self::default()
        }
    }

    /// These rules, which have been found already.
    pub(crate) fn unindexed(rules: Vec<Arc<Rule>>) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// Whether they are written as descriptors, in the form of envoyproxy/ratelimit.
    pub fn is_by_descriptors(&self) -> bool {
        self.descriptors.is_some()
    }

    /// The form in which they are written as descriptors, the same for all that say the same.
    pub fn descriptors(&self) -> Option<&serde_json::Value> {
        self.descriptors.as_ref().map(Descriptors::written)
    }

    /// Whether limits that callers bring count for this domain: one that the descriptors name, or any.
    pub(crate) fn knows_domain(&self, attributes: &Attributes<'_>) -> bool {
        let descriptors = self.descriptors.as_ref();
        descriptors.is_none_or(|descriptors| descriptors.knows_domain(attributes))
    }

    /// A rule for a limit that comes with a request, and the key of its counter. Under descriptors it
    /// continues the counter of these entries.
    pub(crate) fn ad_hoc(&self, grant: &Grant, attributes: &Attributes<'_>) -> (Rule, String) {
        match &self.descriptors {
            Some(descriptors) => {
                let (scope, key) = descriptors.counter(attributes);
                let rule = Rule {
                    scope,
                    settles: true,
                    ..Rule::ad_hoc(grant.clone())
                };
                (rule, key)
            }
            None => (Rule::ad_hoc(grant.clone()), Rule::whole_key(attributes)),
        }
    }

    /// The rule for a descriptor, if rules are written as such.
    pub(crate) fn descriptor_rule(&self, attributes: &Attributes<'_>) -> Option<&Rule> {
        let place = self.descriptors.as_ref()?.find(attributes)?;
        self.rules.get(place as usize).map(Arc::as_ref)
    }

    /// Whether a descriptor is one that may do everything.
    pub fn is_unlimited(&self, attributes: &Attributes<'_>) -> bool {
        let rule = self.descriptor_rule(attributes);
        rule.is_some_and(|rule| matches!(rule.grants(), [Grant::Unlimited]))
    }

    /// The same rules, those that `earlier` has too with what was counted there, and with what their
    /// limits had become if they move within the same bounds.
    #[must_use]
    pub fn inherit_counters(mut self, earlier: &Self) -> Self {
        for rule in &mut self.rules {
            let same = earlier.get(rule.id());
            if let (Some(rule), Some(same)) = (Arc::get_mut(rule), same) {
                rule.counts = Arc::clone(&same.counts);
                if let (Some(new), Some(known)) = (&mut rule.adaptive, &same.adaptive)
                    && new.is_like(known)
                {
                    *new = Arc::clone(known);
                }
            }
        }
        self
    }

    /// Lets the limits that move read the time from this clock.
    pub(crate) fn set_clock(&self, clock: &Arc<dyn Clock>) {
        for limit in self.rules.iter().filter_map(|rule| rule.adaptive()) {
            limit.set_clock(clock);
        }
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Rule>> {
        self.rules.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule with this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Rule>> {
        self.by_id.get(id).map(|place| &self.rules[*place])
    }

    /// The attributes `header.*` that any of them asks about, by their names: what a front end needs to
    /// read of a request's headers. Names that a condition puts together are not among them.
    pub fn header_attributes(&self) -> &[String] {
        &self.headers
    }

    /// Whether any of them asks for the host of a request: one without a host would escape it.
    pub fn reads_host(&self) -> bool {
        self.reads_host
    }

    /// The rule at this place.
    pub(crate) fn at(&self, place: usize) -> &Rule {
        &self.rules[place]
    }

    /// The rule at this place, to be kept.
    pub(crate) fn shared(&self, place: usize) -> &Arc<Rule> {
        &self.rules[place]
    }

    /// What one of so many instances may grant of each limit by itself.
    pub(crate) fn shares(&self, instances: u64) -> Arc<Shares> {
        if let Some(shares) = &*self.shares.load()
            && shares.instances == instances
        {
            return Arc::clone(shares);
        }
        let shares = Arc::new(Shares::of(&self.rules, instances));
        self.shares.store(Some(Arc::clone(&shares)));
        shares
    }

    /// The places of the rules that may apply to a request, in their order: all that do are among
    /// them, and few others.
    pub(crate) fn candidates(&self, attributes: &Attributes<'_>) -> SmallVec<[u32; 16]> {
        if let Some(descriptors) = &self.descriptors {
            return descriptors.find(attributes).into_iter().collect();
        }
        self.index.candidates(attributes)
    }
}

/// Where each rule is, by its id.
fn places(rules: &[Arc<Rule>]) -> HashMap<String, usize, RandomState> {
    let place = |(place, rule): (usize, &Arc<Rule>)| (rule.id.clone(), place);
    rules.iter().enumerate().map(place).collect()
}
