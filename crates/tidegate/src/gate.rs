//! The gate: decides requests by rules, over a store.
//!
//! One decision, whatever front end asks: `matching.rs` finds the rules that apply, `pipeline.rs` groups
//! their charges and turns outcomes into decisions, `deciding.rs` calls the store, `fallback.rs` decides
//! while the store is unavailable, `observer.rs` sees the result. A gate does not fail: when the store
//! does, each rule says what happens, and the decision reports it.
//!
//! Callers with a limit of their own use [`Gate::charge`], which skips rule matching.

mod charge;
mod deciding;
mod decision;
mod decisions;
mod explain;
mod fallback;
mod feedback;
mod group;
mod local;
mod maintain;
mod matching;
mod observer;
mod owed;
mod parts;
mod pipeline;
mod receipt;
mod reconcile;
mod reset;
mod spent;

pub use charge::{Charged, Charging};
pub use deciding::Deciding;
pub use decision::{Decision, LimitOutcome};
pub use decisions::Decisions;
pub use explain::{ExplainedGrant, ExplainedRule, Explanation};
pub use feedback::{Feedback, FeedbackError};
pub use observer::{Observed, ObservedPart, ObservedRule, Observer};
pub use parts::{Asked, Part};
pub use receipt::Receipt;
pub use reconcile::Unreconciled;
pub use reset::{Reset, ResetCounter, ResetError};

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tidegate_core::memory::MemoryStoreBuilder;
use tidegate_core::{
    Charge, Clock, MemoryStore, PermitId, SharedStore, Store, StoreError, SystemClock, Timestamp,
};

use crate::attributes::Attributes;
use crate::credentials::InvalidCredentials;
use crate::rules::{FrontEnd, OnStoreFailure, RuleSet, TemporaryOverrides, ValueDigest};
use local::Local;
use matching::{MatchTerms, MatchedRules};

/// Decides requests by rules, over a store.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tidegate::rules::RuleSet;
/// use tidegate::{Attributes, Gate, MemoryStore};
///
/// let rules = RuleSet::from_yaml("
/// rules:
///   - {id: per-user, match: {path: /v1/**}, per: [user_id], missing: deny, limit: 1/minute}
/// ")?;
/// let gate = Gate::new(MemoryStore::new(), rules);
///
/// let mut attributes = Attributes::new();
/// attributes.insert("path", "/v1/orders")?;
/// attributes.insert("user_id", "u1")?;
/// assert!(gate.decide(&attributes).await.is_allowed());
/// let denied = gate.decide(&attributes).await;
/// assert_eq!(denied.rule(), Some("per-user"));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub struct Gate<S> {
    store: S,
    /// Counts for rules that decide locally while the store is unavailable.
    local: Local,
    rules: ArcSwap<RuleSet>,
    /// The overrides that are merged into the rules. Held while either changes.
    temporary: Mutex<TemporaryOverrides>,
    /// Recognises clients that an override names by their digest.
    digest: Option<Arc<ValueDigest>>,
    clock: Arc<dyn Clock>,
    instances: u64,
    invalid_credentials: InvalidCredentials,
    observer: Option<Arc<dyn Observer>>,
}

/// The rules in force when they were [asked for](Gate::rules). A request is decided by one set from beginning
/// to end: the front end that reads its headers by them passes them on to [`Gate::decide_by`].
#[derive(Debug, Clone)]
pub struct RulesInForce(Arc<RuleSet>);

impl Deref for RulesInForce {
    type Target = RuleSet;

    fn deref(&self) -> &RuleSet {
        &self.0
    }
}

impl<S: Store> Gate<S> {
    /// A gate that asks `store` by `rules`.
    pub fn new(store: S, rules: RuleSet) -> Self {
        Self::with_clock(store, rules, SystemClock)
    }

    /// A gate that reads the time, where it needs one of its own, from `clock`.
    pub fn with_clock(store: S, rules: RuleSet, clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        rules.set_clock(&clock);
        Self {
            store,
            local: Local::new(MemoryStore::builder().clock(Arc::clone(&clock)).build()),
            rules: ArcSwap::from_pointee(rules),
            temporary: Mutex::default(),
            digest: None,
            clock,
            instances: 1,
            invalid_credentials: InvalidCredentials::default(),
            observer: None,
        }
    }

    /// The same gate, with an observer that sees every decision.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    /// The same gate, in which temporary overrides may name clients by these digests.
    #[must_use]
    pub fn with_digest(self, digest: Arc<ValueDigest>) -> Self {
        Self {
            digest: Some(digest),
            ..self
        }
    }

    /// The same gate, one of at least so many that share the store. By
    /// [`OnStoreFailure::Local`] each grants its part of a limit; if the
    /// store knows of more, a smaller one.
    #[must_use]
    pub fn with_instances(self, instances: u64) -> Self {
        Self { instances, ..self }
    }

    /// The same gate, whose counters for [`OnStoreFailure::Local`] are as many and take as much memory as `counters`
    /// allow. Their clock is the gate's.
    #[must_use]
    pub fn with_local_counters(self, counters: MemoryStoreBuilder) -> Self {
        let counters = counters.clock(Arc::clone(&self.clock)).build();
        Self {
            local: Local::new(counters),
            ..self
        }
    }

    /// The same gate, which does this with a request whose credentials are there and not valid. By default it
    /// denies the request, if a rule that applies to it reads an attribute that they should
    /// [give](Attributes::refuse).
    #[must_use]
    pub fn with_invalid_credentials(self, invalid_credentials: InvalidCredentials) -> Self {
        Self {
            invalid_credentials,
            ..self
        }
    }

    /// Decides a request: charges every limit that applies to it, or none.
    pub async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let deciding = self.decide_by(self.rules(), FrontEnd::Library, attributes);
        deciding.wait().await.into_decision()
    }

    /// Begins to decide a request of a front end by [rules](Self::rules) that were loaded for it:
    /// [`now`](Deciding::now) or [`wait`](Deciding::wait) decides it. The receipt can be given back or
    /// settled later.
    pub fn decide_by<'a, 'b>(
        &self,
        rules: RulesInForce,
        front_end: FrontEnd,
        asked: impl Into<Asked<'a, 'b>>,
    ) -> Deciding<'_, 'a, 'b, S> {
        Deciding {
            gate: self,
            rules,
            front_end,
            asked: asked.into(),
        }
    }

    /// Begins to charge one limit that the caller brings. When the store is unavailable, `on_store_failure`
    /// says what happens.
    #[inline]
    pub fn charge<'c>(
        &self,
        charge: &Charge<'c>,
        on_store_failure: OnStoreFailure,
    ) -> Charging<'_, 'c, S> {
        Charging {
            gate: self,
            charge: *charge,
            on_store_failure,
        }
    }

    /// Whether everything is decided without waiting, because the store keeps all state in memory.
    pub fn is_immediate(&self) -> bool {
        self.store.memory().is_some()
    }

    fn time_of(&self, attributes: &Attributes<'_>) -> Timestamp {
        attributes.time().unwrap_or_else(|| self.clock.now())
    }

    fn terms(&self, now: Timestamp) -> MatchTerms {
        MatchTerms {
            now,
            invalid_credentials: self.invalid_credentials,
        }
    }

    /// An id for the permits that a request will hold, if a concurrency limit is charged.
    fn new_permit(&self, rules: &RuleSet, matched: &MatchedRules<'_>) -> Option<PermitId> {
        let mut held: SmallVec<[Charge<'_>; 1]> = SmallVec::new();
        for rule in matched.iter().filter(|rule| rule.cost > 0 && !rule.is_peek) {
            let limits = rule.limits(rules).iter();
            for limit in limits.filter(|limit| limit.is_concurrency()) {
                held.push(Charge {
                    scope: rules.at(rule.rule).scope(),
                    limit,
                    key: rule.key.as_deref().unwrap_or_default(),
                    cost: rule.cost,
                });
            }
        }
        let new = || match self.store.shared() {
            Some(shared) => shared.permit_for(&held),
            None => PermitId::random(),
        };
        (!held.is_empty()).then(new)
    }

    /// The observer's clock.
    #[inline]
    fn begin(&self) -> u64 {
        let observer = self.observer.as_ref();
        observer.map_or(0, |observer| observer.begin())
    }

    fn is_store_up(&self) -> bool {
        self.store.shared().is_none_or(SharedStore::is_up)
    }

    /// The rules in force.
    pub fn rules(&self) -> RulesInForce {
        RulesInForce(self.rules.load_full())
    }

    /// Puts other rules in force, all of them in one step. What was used stays used, and what was counted by
    /// rules that stay goes on being counted. Temporary overrides stay as they are.
    pub fn replace_rules(&self, rules: RuleSet) {
        let temporary = self.temporary.lock();
        let rules = rules.inherit_counters(&self.rules.load());
        let merged = rules.with_temporary(&temporary, self.digest.as_ref());
        self.put_in_force(merged.unwrap_or(rules));
    }

    /// Replaces all temporary overrides in one step. They beat tiers and overrides of their rule until they end,
    /// by the time of each decision, and stay when rules are replaced.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate::rules::{OverrideKey, RuleSet, TemporaryOverride, TemporaryOverrides};
    /// use tidegate::{Attributes, Clock, Gate, MemoryStore, Micros, SystemClock};
    ///
    /// let rules = RuleSet::from_yaml("rules: [{id: per-user, per: [user_id], limit: blocked}]")?;
    /// let gate = Gate::new(MemoryStore::new(), rules);
    /// let mut attributes = Attributes::new();
    /// attributes.insert("user_id", "u1")?;
    /// assert!(gate.decide(&attributes).await.is_denied());
    ///
    /// let raised = TemporaryOverride {
    ///     key: OverrideKey::Value("u1".to_owned()),
    ///     limit: "100/minute".to_owned(),
    ///     expires_at: SystemClock.now() + Micros::HOUR,
    /// };
    /// gate.replace_overrides(TemporaryOverrides::from([("per-user".to_owned(), vec![raised])]));
    /// assert!(gate.decide(&attributes).await.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn replace_overrides(&self, overrides: TemporaryOverrides) {
        let mut temporary = self.temporary.lock();
        *temporary = overrides;
        let rules = self.rules.load();
        if let Some(merged) = rules.with_temporary(&temporary, self.digest.as_ref()) {
            self.put_in_force(merged);
        }
    }

    fn put_in_force(&self, rules: RuleSet) {
        rules.set_clock(&self.clock);
        self.rules.store(Arc::new(rules));
        if let Some(shared) = self.store.shared() {
            shared.rules_changed();
        }
    }

    /// The store that is asked.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Releases a permit. False if it is unknown or has ended.
    ///
    /// One that was taken without the store ends without it.
    pub async fn release(&self, permit: PermitId) -> Result<bool, StoreError> {
        let is_local = self.local.release(permit);
        // The store may hold it too: for another rule, or because it was charged and could not say so.
        if is_local && !self.is_store_up() {
            return Ok(true);
        }
        let released = self.store.release(permit).await;
        if is_local { Ok(true) } else { released }
    }

    /// Lets a permit last its whole time again. False if it is unknown or has ended.
    pub async fn renew(&self, permit: PermitId) -> Result<bool, StoreError> {
        let is_local = self.local.renew(permit);
        if is_local && !self.is_store_up() {
            return Ok(true);
        }
        let renewed = self.store.renew(permit).await;
        if is_local { Ok(true) } else { renewed }
    }
}

#[cfg(test)]
mod tests;
