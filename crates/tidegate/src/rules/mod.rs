//! Rules: reading and validating them, and finding those that match.
//!
//! [`RuleSet::from_yaml`] reads the text of a rule file, [`Rule::builder`] builds a rule in Rust; the same code
//! validates both. [`RuleSet::to_json`] writes rules.

mod applies;
mod builder;
mod client_written;
#[cfg(feature = "cel")]
mod condition;
#[cfg(not(feature = "cel"))]
#[path = "no_condition.rs"]
mod condition;
mod counter_key;
mod counts;
mod denied;
mod descriptors;
mod digest;
mod explain;
mod facts;
mod grant;
mod hashed;
mod index;
mod key_share;
mod keys;
mod matching;
mod named_values;
mod networks;
mod override_key;
mod pattern;
mod pointless;
mod promise;
mod promote;
mod read;
mod read_adaptive;
mod read_attributes;
mod read_budget;
mod read_candidate;
mod read_exempt;
mod read_limit;
mod read_match;
mod read_override;
mod read_rule;
mod read_time;
mod rule;
mod schema;
mod shares;
mod temporary;
mod warnings;
mod work;
mod write;

pub(crate) use applies::Unmet;
pub use builder::{MatchBuilder, RuleBuilder};
pub use condition::Condition;
pub(crate) use counter_key::{CounterKey, MissingNames};
pub(crate) use counts::add_one;
pub use counts::{BudgetKind, CandidateChange, FrontEnd, RuleCounts, Verdict};
pub use denied::{DenialAnswer, DenialFacts};
#[doc(hidden)]
pub use descriptors::StatPath;
pub use descriptors::{CurrentOverlay, Overlay, Units};
pub use digest::ValueDigest;
pub(crate) use explain::{Explaining, limits_text};
pub use explain::{FailedCondition, ShowValue};
pub(crate) use facts::Facts;
pub use grant::{Grant, GrantSource};
pub use key_share::KeyShare;
pub use keys::DENIED;
pub use matching::Match;
pub use override_key::OverrideKey;
pub use pattern::{HostPattern, PathPattern};
pub use read_time::read_time;
pub use rule::{Consistency, Cost, Missing, Mode, OnStoreFailure, Rule, Unsettled};
pub use schema::{api_schemas, keys, schema};
pub(crate) use shares::{Share, Shares};
pub(crate) use temporary::TemporaryGrants;
pub use temporary::{TemporaryOverride, TemporaryOverrides};
pub use tidegate_core::store::ALWAYS_SECRET;
pub use write::write_time;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

#[doc(hidden)]
pub use descriptors::DescriptorSource;
use descriptors::Descriptors;
use foldhash::fast::RandomState;
use index::Index;
use read_attributes::ReadAttributes;
use smallvec::SmallVec;
use tidegate_core::Timestamp;

use crate::attributes::Attributes;
use crate::internal::document::{self, Node, Spot};
#[doc(inline)]
pub use crate::internal::document::{Place, Problem, Problems, Severity, Source};

/// A front end that describes requests itself: its callers send no attributes.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribingFrontEnd {
    /// Where it describes them, such as `at the gateway`.
    pub place: &'static str,
    /// The attributes that its settings set, in addition to address, method, path, host and headers.
    pub identified: Vec<String>,
    /// The units in which nothing says what a request costs, although its settings could.
    pub unread_units: Vec<&'static str>,
}

/// Settings of the server that rules are read with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleSettings {
    /// How many bits of an IPv6 address make the key of `per: [ip]`.
    pub ipv6_prefix: u8,
    /// The attributes whose values must not be readable in a store, in addition to `api_key` and credentials in headers.
    pub secret_attributes: Vec<String>,
    /// The front end that describes requests itself, if one is in use, to warn about rules that it can never
    /// apply.
    #[doc(hidden)]
    pub described_by: Option<DescribingFrontEnd>,
    /// The current time, to warn about rules that have expired. None: no such warning.
    pub now: Option<Timestamp>,
    /// Where the windows of weeks, months and years begin, of rules in the form of envoyproxy/ratelimit.
    pub units: Units,
    /// Whether all of their limits are quotas.
    pub quota: bool,
    /// How they are counted where they do not say it.
    pub overlay: CurrentOverlay,
    /// Whether a call charges nothing by them if one of its descriptors is denied and none has a cost of its own.
    pub all_or_nothing: bool,
    /// Whether several documents in the form of envoyproxy/ratelimit may have the same domain.
    #[doc(hidden)]
    pub merge_domains: bool,
}

impl Default for RuleSettings {
    fn default() -> Self {
        Self {
            ipv6_prefix: 64,
            secret_attributes: Vec::new(),
            described_by: None,
            now: None,
            units: Units::default(),
            quota: false,
            overlay: CurrentOverlay::default(),
            all_or_nothing: false,
            merge_domains: false,
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

    /// Whether the values of this attribute must not be readable in a store, nor shown.
    pub fn is_secret(&self, attribute: &str) -> bool {
        let mut secret = self.secret_attributes.iter();
        ALWAYS_SECRET.contains(&attribute) || secret.any(|name| name == attribute)
    }
}

/// Rules, in their order.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    rules: Vec<Arc<Rule>>,
    by_id: Arc<HashMap<String, usize, RandomState>>,
    index: Arc<Index>,
    /// The attributes `header.*` that any of them asks about.
    headers: Vec<String>,
    attributes: Arc<ReadAttributes>,
    /// Whether any of them asks for the host of a request.
    reads_host: bool,
    /// Whether any of them has permits that its clients share.
    has_shared_permits: bool,
    /// Whether any of them has a condition.
    has_conditions: bool,
    /// How rules are found that are written as descriptors. Then only by these.
    descriptors: Option<Arc<Descriptors>>,
    /// These as they were read, without the overlay, with the warnings.
    read: Option<Arc<(Vec<Arc<Rule>>, Problems)>>,
    warnings: Problems,
}

impl RuleSet {
    /// No rules: everything is allowed.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The rules of a text in YAML, or in JSON, which is YAML too. An error has all problems;
    /// [`warnings`](Self::warnings) has the warnings of rules that can be used.
    ///
    /// ```
    /// use tidegate::rules::RuleSet;
    ///
    /// let problems = RuleSet::from_yaml("
    /// rules:
    ///   - id: per-user
    ///     per: [user_id]
    ///     limit: 100/fortnight
    /// ").expect_err("a unit that does not exist");
    /// assert!(problems.to_string().starts_with("error: rules:5:12: rule `per-user`, field `limit`:"));
    /// ```
    pub fn from_yaml(text: &str) -> Result<Self, Problems> {
        Self::read(&Source::new("rules", text), &RuleSettings::default())
    }

    /// The rules of a file, by these settings.
    pub fn read(source: &Source, settings: &RuleSettings) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let documents = source.read_all(&mut problems);
        let rules = documents.and_then(|documents| {
            if descriptors::are_written(&documents) {
                return descriptors::read(&documents, settings, &mut problems);
            }
            let node = document::only(&documents, &mut problems)?;
            read::rules(node, settings, &mut problems).map(Self::new)
        });
        problems.sort();
        Self::with_warnings(rules, problems)
    }

    /// The rules of a document of the form `{"rules": [...]}`.
    #[doc(hidden)]
    pub fn from_node(node: &Node, settings: &RuleSettings) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let rules = read::rules(node, settings, &mut problems);
        Self::with_warnings(rules.map(Self::new), problems)
    }

    /// The rules of documents in the form of envoyproxy/ratelimit that are not of one file.
    #[doc(hidden)]
    pub fn from_descriptors(
        sources: &[DescriptorSource],
        settings: &RuleSettings,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let rules = descriptors::read_all(sources, settings, &mut problems);
        problems.sort();
        Self::with_warnings(rules, problems)
    }

    fn with_warnings(rules: Option<Self>, warnings: Problems) -> Result<Self, Problems> {
        match rules {
            Some(rules) if rules.is_by_descriptors() => {
                let read = Some(Arc::new((rules.rules.clone(), warnings)));
                Ok(Self { read, ..rules }.overlaid())
            }
            Some(rules) => Ok(Self { warnings, ..rules }),
            None => Err(warnings),
        }
    }

    /// These rules, in this order. Two with the same id are an error.
    pub fn from_rules<R: Into<Arc<Rule>>>(
        rules: impl IntoIterator<Item = R>,
    ) -> Result<Self, Problems> {
        let rules: Vec<Arc<Rule>> = rules.into_iter().map(Into::into).collect();
        let mut problems = Problems::new();
        let mut ids = BTreeSet::new();
        for rule in &rules {
            problems.extend(&rule.warnings);
            if !ids.insert(rule.id()) {
                let spot = Spot::rule_with_id(rule.id()).field("id");
                let message = read::repeated_id(rule.id(), &Place::Nowhere);
                problems.error(&Place::Nowhere, &spot, message);
            }
        }
        drop(ids);
        if problems.has_errors() {
            return Err(problems);
        }
        pointless::warn_of_alike(&rules, |_| &Place::Nowhere, &mut problems);
        Self::with_warnings(Some(Self::new(rules)), problems)
    }

    /// The same rules, each as `change` returns it: other limits or another mode, but not another match. They are
    /// found as these are.
    #[doc(hidden)]
    pub fn map_rules<E>(
        &self,
        change: impl FnMut(&Arc<Rule>) -> Result<Arc<Rule>, E>,
    ) -> Result<Self, E> {
        let rules = self.rules.iter().map(change).collect::<Result<_, E>>()?;
        Ok(Self {
            rules,
            ..self.clone()
        })
    }

    /// The warnings that were found when the rules were read or built.
    pub fn warnings(&self) -> &Problems {
        &self.warnings
    }

    /// These rules, whose ids are distinct.
    fn new(rules: Vec<Arc<Rule>>) -> Self {
        let headers: BTreeSet<&str> = rules.iter().flat_map(|rule| rule.headers()).collect();
        let headers = headers.into_iter().map(str::to_owned).collect();
        Self {
            by_id: Arc::new(indexes_by_id(&rules)),
            index: Arc::new(Index::new(&rules)),
            headers,
            attributes: Arc::new(ReadAttributes::of(&rules)),
            reads_host: rules.iter().any(|rule| rule.reads_host()),
            has_shared_permits: rules.iter().any(|rule| rule.has_shared_permits()),
            has_conditions: rules.iter().any(|rule| rule.conditions().next().is_some()),
            rules,
            ..Self::default()
        }
    }

    /// These rules, found by descriptors.
    fn by_descriptors(rules: Vec<Arc<Rule>>, descriptors: Descriptors) -> Self {
        Self {
            by_id: Arc::new(indexes_by_id(&rules)),
            attributes: Arc::new(ReadAttributes::of(&rules)),
            rules,
            descriptors: Some(Arc::new(descriptors)),
            ..Self::default()
        }
    }

    /// These rules, of those in the form of envoyproxy/ratelimit each as the current overlay says that it is counted.
    #[must_use]
    pub fn overlaid(&self) -> Self {
        let (Some(descriptors), Some(read)) = (&self.descriptors, &self.read) else {
            return self.clone();
        };
        let settings = descriptors.settings();
        let (rules, mut warnings) = (&read.0, read.1.clone());
        let rules = rules.iter().map(|rule| {
            descriptors::overlaid(rule, &settings.overlay, settings.units, &mut warnings)
        });
        Self {
            rules: rules.collect(),
            warnings,
            ..self.clone()
        }
    }

    /// These rules, which have been found already.
    pub(crate) fn unindexed(rules: Vec<Arc<Rule>>) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// A rule for a limit that comes with a request, and the key of its counter. Under descriptors it
    /// continues the counter of these entries.
    pub(crate) fn ad_hoc(&self, grant: &Grant, attributes: &Attributes<'_>) -> (Rule, String) {
        match &self.descriptors {
            Some(descriptors) => {
                let (scope, key) = descriptors.counter(attributes);
                let mut rule = Rule {
                    scope,
                    settles: true,
                    ..Rule::ad_hoc(grant.clone())
                };
                if let Some(descriptor) = &mut rule.descriptor {
                    descriptor.is_quota = descriptors.settings().quota;
                }
                (rule, key)
            }
            None => (Rule::ad_hoc(grant.clone()), Rule::whole_key(attributes)),
        }
    }

    /// The rule for a descriptor, if rules are written as descriptors.
    pub(crate) fn descriptor_rule(&self, attributes: &Attributes<'_>) -> Option<&Rule> {
        let index = self.descriptor_index(attributes)?;
        self.rules.get(index).map(Arc::as_ref)
    }

    /// The index of the rule for a descriptor.
    pub(crate) fn descriptor_index(&self, attributes: &Attributes<'_>) -> Option<usize> {
        let index = self.descriptors.as_ref()?.find(attributes)?;
        Some(index as usize)
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
        self.index_of(id).map(|index| &self.rules[index])
    }

    /// The index of the rule with this id.
    pub(crate) fn index_of(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The attributes `header.*` that any of them asks about, by their names: the headers that a front end has to read.
    /// Names that a condition computes are not included.
    pub fn header_attributes(&self) -> &[String] {
        &self.headers
    }

    /// Whether any of them may read this attribute: to match, to count, to choose a grant, or to charge.
    #[doc(hidden)]
    pub fn reads(&self, attribute: &str) -> bool {
        self.attributes.has(attribute)
    }

    /// Whether any of them counts by this attribute.
    #[doc(hidden)]
    pub fn counts_by(&self, attribute: &str) -> bool {
        self.attributes.is_counted(attribute)
    }

    /// Whether any of them asks for the host of a request: one without a host would escape it.
    #[doc(hidden)]
    pub fn reads_host(&self) -> bool {
        self.reads_host
    }

    /// Whether any of them is a concurrency limit whose permits clients share, by `per: []` or
    /// `missing: share`: see [`Gate::takes_shared_permit`](crate::Gate::takes_shared_permit).
    #[doc(hidden)]
    pub fn has_shared_permits(&self) -> bool {
        self.has_shared_permits
    }

    /// The rule at this index.
    pub(crate) fn at(&self, index: usize) -> &Rule {
        &self.rules[index]
    }

    /// The rule at this index, to be kept.
    pub(crate) fn shared(&self, index: usize) -> &Arc<Rule> {
        &self.rules[index]
    }

    /// The indexes of the rules that may apply to a request, in their order: all that do are among
    /// them, and few others.
    pub(crate) fn candidates(&self, attributes: &Attributes<'_>) -> SmallVec<[u32; 16]> {
        if let Some(descriptors) = &self.descriptors {
            return descriptors.find(attributes).into_iter().collect();
        }
        self.index.candidates(attributes)
    }
}

/// The index of each rule, by its id.
fn indexes_by_id(rules: &[Arc<Rule>]) -> HashMap<String, usize, RandomState> {
    let indexed = rules.iter().enumerate();
    indexed
        .map(|(index, rule)| (rule.id.clone(), index))
        .collect()
}
