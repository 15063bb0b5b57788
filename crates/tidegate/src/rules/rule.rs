//! A rule: when a limit applies, and to which key. Already validated.

use std::sync::Arc;

use tidegate_core::{Algorithm, CostUnit, Limit, Micros, Scope, Timestamp, Window};

use super::condition::Condition;
use super::denied::DenialAnswer;
use super::descriptors::Descriptor;
use super::grant::{Grant, GrantIndexes};
use super::hashed::HashedOverrides;
use super::key_share::KeyShare;
use super::matching::{HEADER, Match};
use super::networks::Networks;
use crate::adaptive::AdaptiveBounds;
use crate::attributes::Attributes;
use crate::internal::document::Problems;

/// When a limit applies, and to which key.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub(super) id: String,
    pub(super) description: Option<String>,
    pub(super) matches: Match,
    /// The rule does not apply to requests for which one of these holds.
    pub(super) except: Vec<Match>,
    pub(super) per: Vec<String>,
    pub(super) missing: Missing,
    /// The grants. The first one applies unless a tier or an override says otherwise.
    pub(super) grants: Vec<Grant>,
    pub(super) tiers: GrantIndexes,
    pub(super) overrides: GrantIndexes,
    pub(super) hashed_overrides: HashedOverrides,
    /// The overrides for networks that cover several keys.
    pub(super) override_networks: Option<Box<Networks<usize>>>,
    /// What is tried in place of the grants.
    pub(super) candidate: Option<Arc<Rule>>,
    pub(super) is_candidate: bool,
    pub(super) rollout: Option<KeyShare>,
    pub(super) algorithm: Option<Algorithm>,
    pub(super) max_delay: Option<Micros>,
    /// What its limits count.
    pub(super) unit: CostUnit,
    pub(super) cost: Cost,
    pub(super) unsettled: Unsettled,
    /// The percentage of a limit from which its use is reported.
    pub(super) warn_at: Option<u8>,
    pub(super) mode: Mode,
    pub(super) on_store_failure: OnStoreFailure,
    /// The answer to denied clients, if it is not the usual one.
    pub(super) denied: Option<Box<DenialAnswer>>,
    pub(super) sync: Consistency,
    /// Whether a cost that is known afterwards and does not fit is charged as far as it fits.
    pub(super) settles: bool,
    pub(super) starts_at: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) ipv6_prefix: u8,
    /// The rule as JSON, as it was written.
    pub(super) written: serde_json::Value,
    pub(super) scope: Scope,
    /// Within which bounds its limit moves, if it is adaptive.
    pub(super) adaptive: Option<AdaptiveBounds>,
    /// Options that only descriptors have.
    pub(super) descriptor: Option<Box<Descriptor>>,
    /// The warnings, if the rule was read or built alone.
    pub(super) warnings: Problems,
}

/// The handling of requests without the attributes of `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Missing {
    /// The rule does not apply.
    #[default]
    Skip,
    /// All such requests share one counter.
    Share,
    /// It is denied.
    Deny,
}

/// How much a request takes of a rule's limits, before its own cost multiplies it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cost {
    /// So much.
    Fixed(u64),
    /// The value of this attribute; 1 if it is not a whole number.
    Attribute(String),
}

/// What becomes of a reservation that is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unsettled {
    /// Its estimate stays charged: the work may have been done.
    #[default]
    Keep,
    /// Its estimate is given back.
    GiveBack,
}

/// Whether a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It only counts what it would have decided.
    Shadow,
}

/// The action of a rule while the store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// Lets the request go on.
    Allow,
    /// Stops it.
    Deny,
    /// Goes on with counters of this instance alone.
    #[default]
    Local,
    /// Fails the call of Envoy, whose settings say what follows; stops other requests. Of descriptor limits only.
    Error,
}

/// How instances that share a store agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Consistency {
    /// The store decides every request.
    #[default]
    Exact,
    /// Instances take batches from the store and decide from them.
    Leased,
}

impl Rule {
    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The warnings, if the rule was [built](Self::builder) or read alone.
    pub fn warnings(&self) -> &Problems {
        &self.warnings
    }

    /// Which attributes make the key.
    pub fn per(&self) -> &[String] {
        &self.per
    }

    /// Whether a request escapes it that lacks an attribute of [`per`](Self::per).
    #[doc(hidden)]
    pub fn is_escapable(&self) -> bool {
        self.missing == Missing::Skip && self.mode == Mode::Enforce
    }

    /// Whether it decides or only counts.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The action while the store is unavailable.
    pub fn on_store_failure(&self) -> OnStoreFailure {
        self.on_store_failure
    }

    /// How instances that share a store agree.
    pub fn sync(&self) -> Consistency {
        self.sync
    }

    /// Names the states of this rule.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Within which bounds its limit moves, if it is adaptive. [Grants](Self::grants) then have the limit that it
    /// begins with.
    pub fn adaptive(&self) -> Option<&AdaptiveBounds> {
        self.adaptive.as_ref()
    }

    /// Everything that it may grant: its own limit first, then tiers and overrides.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Whether it is a concurrency limit whose permits are shared by clients, or may become one by its candidate: one of
    /// them could hold all.
    pub(crate) fn has_shared_permits(&self) -> bool {
        let candidate = self.candidate.as_ref().filter(|_| self.rollout.is_some());
        if candidate.is_some_and(|candidate| candidate.has_shared_permits()) {
            return true;
        }
        let mut limits = self.grants.iter().flat_map(Grant::limits);
        self.mode == Mode::Enforce
            && (self.per.is_empty() || self.missing == Missing::Share)
            && limits.any(Limit::is_concurrency)
    }

    /// Whether the attribute `tier` chooses the grant, or that of its candidate.
    pub(crate) fn has_tiers(&self) -> bool {
        let candidate = self.candidate.as_ref();
        !self.tiers.is_empty() || candidate.is_some_and(|candidate| candidate.has_tiers())
    }

    /// The name of its limits in answers to descriptors: the rule's id. A descriptor rule has a name only if the file
    /// gives it one.
    pub fn limit_name(&self) -> &str {
        let descriptor = self.descriptor.as_ref();
        descriptor.map_or(&self.id, |descriptor| &descriptor.name)
    }

    /// The names of limits that do not apply to a request where this one does.
    pub(crate) fn replaces(&self) -> &[String] {
        let descriptor = self.descriptor.as_ref();
        descriptor.map_or(&[], |descriptor| &descriptor.replaces)
    }

    /// Whether its limit is a quota: a request is denied only if it is over all of its quotas.
    pub fn is_quota(&self) -> bool {
        let descriptor = self.descriptor.as_ref();
        descriptor.is_some_and(|descriptor| descriptor.is_quota)
    }

    /// Whether a cost that is known afterwards and does not fit is charged as far as it fits.
    pub fn settles(&self) -> bool {
        self.settles
    }

    /// What its limits count.
    pub fn unit(&self) -> &CostUnit {
        &self.unit
    }

    /// What becomes of a reservation that is not settled.
    pub fn unsettled(&self) -> Unsettled {
        self.unsettled
    }

    /// The percentage of a limit from which its use is reported.
    pub fn warn_at(&self) -> Option<u8> {
        self.warn_at
    }

    /// The period of its limit as a file of envoyproxy/ratelimit writes it, also where nothing is granted.
    pub fn period(&self) -> Option<Window> {
        self.descriptor.as_ref()?.unit
    }

    /// The metadata that a file of envoyproxy/ratelimit adds to decisions of this rule.
    pub fn metadata(&self) -> Option<&serde_json::Value> {
        let descriptor = self.descriptor.as_ref()?;
        (!descriptor.metadata.is_null()).then_some(&descriptor.metadata)
    }

    /// Whether it is made for a limit that a caller brought with one request.
    pub(crate) fn is_ad_hoc(&self) -> bool {
        let descriptor = self.descriptor.as_ref();
        descriptor.is_some_and(|descriptor| descriptor.is_of_no_file())
    }

    /// A rule for a limit that the caller brings.
    pub(crate) fn ad_hoc(grant: Grant) -> Self {
        Self {
            id: "limit".to_owned(),
            // No rule's id begins like this. Its key has every entry of a descriptor, and any may be a secret.
            scope: Scope::new("@limit").with_secret_keys(),
            descriptor: Some(Box::default()),
            ..Self::granting(grant)
        }
    }

    /// A rule for every request, that grants this and is otherwise as by default.
    pub(super) fn granting(grant: Grant) -> Self {
        Self {
            id: String::new(),
            description: None,
            matches: Match::default(),
            except: Vec::new(),
            per: Vec::new(),
            missing: Missing::default(),
            grants: vec![grant],
            tiers: GrantIndexes::default(),
            overrides: GrantIndexes::default(),
            hashed_overrides: HashedOverrides::None,
            override_networks: None,
            candidate: None,
            is_candidate: false,
            rollout: None,
            algorithm: None,
            max_delay: None,
            unit: CostUnit::REQUESTS,
            cost: Cost::Fixed(1),
            unsettled: Unsettled::default(),
            warn_at: None,
            mode: Mode::default(),
            on_store_failure: OnStoreFailure::default(),
            denied: None,
            sync: Consistency::default(),
            settles: false,
            starts_at: None,
            expires_at: None,
            ipv6_prefix: 64,
            written: serde_json::Value::Null,
            scope: Scope::new(""),
            descriptor: None,
            adaptive: None,
            warnings: Problems::new(),
        }
    }

    /// The conditions of `match` and `except`.
    pub(super) fn conditions(&self) -> impl Iterator<Item = &Condition> {
        let all = std::iter::once(&self.matches).chain(&self.except);
        all.filter_map(|matches| matches.when.as_ref())
    }

    /// Whether it reads the host of a request.
    pub(super) fn reads_host(&self) -> bool {
        self.matches.reads_host()
            || self.except.iter().any(Match::reads_host)
            || self.per.iter().any(|name| name == "host")
    }

    /// The cost for each unit of a request's own cost. The flag is true if an attribute should have provided it and is
    /// not a number.
    pub(crate) fn unit_cost(&self, attributes: &Attributes<'_>) -> (u64, bool) {
        match &self.cost {
            Cost::Fixed(cost) => (*cost, false),
            Cost::Attribute(name) => match attributes.get(name).map(whole_number) {
                Some(Some(cost)) => (cost, false),
                Some(None) => (1, true),
                None => (1, false),
            },
        }
    }

    /// The names of the headers that it asks about, as `header.` attributes; some perhaps more than once.
    pub(super) fn headers(&self) -> impl Iterator<Item = &str> {
        let per = self.per.iter().map(String::as_str);
        let cost = match &self.cost {
            Cost::Attribute(name) => Some(name.as_str()),
            Cost::Fixed(_) => None,
        };
        let plain = per.chain(cost).filter(|name| name.starts_with(HEADER));
        let excepted = self.except.iter().flat_map(Match::headers);
        plain.chain(self.matches.headers()).chain(excepted)
    }
}

/// Parses digits. A number that is too large becomes the largest one, so that an excessive cost is never read as a
/// small one.
fn whole_number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}
