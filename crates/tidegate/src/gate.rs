//! The gate: decides requests by rules, over a store.
//!
//! One decision, whatever front end asks: `matching.rs` finds the rules that apply and begins a record for each
//! (`rule_decision.rs`), `pipeline.rs` orders the calls to the store, `deciding.rs` makes them, `fallback.rs` decides
//! while the store is unavailable, `decision.rs` says what the records mean for the request, `observer.rs` shows them.
//! What changes of a rule is in `in_force.rs`, what is tried of it in `trials.rs`. A gate does not fail: when the store does, each rule says what happens,
//! and the decision reports it.
//!
//! Callers with a limit of their own use [`Gate::charge`], which skips rule matching.

mod charge;
mod deciding;
mod decision;
mod decisions;
mod estimates;
mod explain;
mod fallback;
mod feedback;
mod held_record;
mod in_force;
mod kept_alone;
mod local;
mod maintain;
mod matching;
mod observed_candidate;
mod observer;
mod owed;
mod parts;
mod pipeline;
mod receipt;
mod reconcile;
mod rehearsal;
mod reserving;
mod reset;
mod rule_decision;
mod settlement;
mod spent;
mod stored;
mod stored_record;
mod trials;
mod unit_limits;
mod warned;

pub use charge::Charged;
pub use deciding::StoreIsRemote;
pub use decision::{Decision, LimitOutcome};
pub use decisions::Decisions;
pub use estimates::{SettledUse, UseCounter};
pub use explain::{ExplainedCandidate, ExplainedGrant, ExplainedRule, ExplainedTier, Explanation};
pub use feedback::{Feedback, FeedbackError};
pub use in_force::{RuleInForce, RulesInForce};
pub use observed_candidate::ObservedCandidate;
pub use observer::{Observed, ObservedPart, ObservedRule, Observer, RuleWatch};
pub use parts::{Asked, Part};
pub use receipt::{KeptReceipt, Receipt};
pub use reconcile::Unreconciled;
#[doc(hidden)]
pub use rehearsal::{MatchedCharge, MatchedRequest};
pub use reserving::{ReservationCounts, ReservationEnd, ReservationGuard, ReserveError};
pub use reset::{Reset, ResetCounter, ResetError};
pub use settlement::{SettleError, SettledLimit, Settlement};
use stored::UncountedSettlements;
pub use stored::{ExtendedReservation, ReservationError, ReservedDecision};
pub use stored_record::ReservationRecord;
pub use unit_limits::UnitLimit;
pub use warned::WarnedLimit;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tidegate_core::memory::MemoryStoreBuilder;
use tidegate_core::{
    Charge, Clock, MemoryStore, PermitId, RemoteStore, Store, StoreError, SystemClock, Timestamp,
};

use crate::attributes::Attributes;
use crate::credentials::InvalidCredentials;
use crate::rules::{RuleSet, TemporaryOverrides, ValueDigest};
use in_force::{InForce, StateTerms};
use kept_alone::ReservationsAlone;
use local::Local;
use matching::MatchTerms;
use rule_decision::RuleDecisions;

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
pub struct Gate {
    store: Store,
    /// Counts for rules that decide locally while the store is unavailable.
    local: Local,
    in_force: ArcSwap<InForce>,
    /// The temporary overrides of the rules. Held while either changes.
    temporary: Mutex<TemporaryOverrides>,
    /// Recognises clients that an override names by their digest.
    digest: Option<Arc<ValueDigest>>,
    clock: Arc<dyn Clock>,
    instances: u64,
    invalid_credentials: InvalidCredentials,
    observer: Option<Arc<dyn Observer>>,
    reservations: Arc<ReservationCounts>,
    /// Those that were made while the store was unavailable.
    alone: Arc<ReservationsAlone>,
    uncounted: Mutex<UncountedSettlements>,
}

impl Gate {
    /// A gate that asks `store` by `rules`.
    pub fn new(store: impl Into<Store>, rules: RuleSet) -> Self {
        Self::with_clock(store, rules, SystemClock)
    }

    /// A gate that reads the time, where it needs one of its own, from `clock`.
    pub fn with_clock(store: impl Into<Store>, rules: RuleSet, clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let terms = StateTerms {
            clock: &clock,
            temporary: &TemporaryOverrides::new(),
            digest: None,
            observer: None,
        };
        let alone = Arc::new(ReservationsAlone::new(&clock));
        Self {
            store: store.into(),
            local: Local::new(MemoryStore::builder().clock(Arc::clone(&clock)).build()),
            in_force: ArcSwap::from_pointee(InForce::new(rules, None, &terms)),
            temporary: Mutex::default(),
            digest: None,
            clock,
            instances: 1,
            invalid_credentials: InvalidCredentials::default(),
            observer: None,
            reservations: Arc::default(),
            alone,
            uncounted: Mutex::default(),
        }
    }

    /// The same gate, with an observer that sees every decision.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        let gate = Self {
            observer: Some(observer),
            ..self
        };
        let rules = RuleSet::clone(&gate.in_force.load());
        gate.put_in_force(rules, &gate.temporary.lock());
        gate
    }

    /// The same gate, in which temporary overrides may name clients by these digests, and whose
    /// [rollouts](crate::rules::KeyShare) choose keys by their secret. Without it they choose by a public constant.
    #[must_use]
    pub fn with_digest(self, digest: Arc<ValueDigest>) -> Self {
        let gate = Self {
            digest: Some(digest),
            ..self
        };
        let rules = RuleSet::clone(&gate.in_force.load());
        gate.put_in_force(rules, &gate.temporary.lock());
        gate
    }

    /// The same gate, one of at least so many that share the store. By
    /// [`OnStoreFailure::Local`](crate::rules::OnStoreFailure::Local) each grants its part of a limit; if the
    /// store knows of more, a smaller one.
    #[must_use]
    pub fn with_instances(self, instances: u64) -> Self {
        Self { instances, ..self }
    }

    /// The same gate, whose counters for [`OnStoreFailure::Local`](crate::rules::OnStoreFailure::Local) are as many and take as much memory as `counters`
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
    fn new_permit(&self, in_force: &InForce, matched: &RuleDecisions) -> Option<PermitId> {
        let mut holding = matched.iter().filter(|rule| rule.takes_permit(in_force));
        let first = holding.next()?;
        if let Store::Memory(_) = self.store {
            return Some(PermitId::random());
        }
        let charges = std::iter::once(first).chain(holding);
        let charges = charges.flat_map(|rule| rule.charges(in_force));
        let held: SmallVec<[Charge<'_>; 1]> = charges
            .filter(|charge| charge.limit.is_concurrency())
            .collect();
        Some(self.store.permit_for(&held))
    }

    /// The observer's clock.
    #[inline]
    fn begin(&self) -> u64 {
        let observer = self.observer.as_ref();
        observer.map_or(0, |observer| observer.begin())
    }

    fn is_store_up(&self) -> bool {
        self.store.remote().is_none_or(RemoteStore::is_up)
    }

    /// The rules in force.
    pub fn rules(&self) -> RulesInForce {
        RulesInForce(self.in_force.load_full())
    }

    /// Puts other rules in force, all of them in one step. What was used stays used, and what was counted by
    /// rules that stay goes on being counted. Temporary overrides stay as they are.
    ///
    /// ```
    /// use tidegate::rules::RuleSet;
    /// use tidegate::{Gate, MemoryStore};
    ///
    /// let gate = Gate::new(MemoryStore::new(), RuleSet::empty());
    /// let rules = RuleSet::from_yaml("rules: [{id: all, per: [], limit: 100/minute}]")?;
    /// gate.replace_rules(rules);
    /// assert_eq!(gate.rules().len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_rules(&self, rules: RuleSet) {
        self.put_in_force(rules, &self.temporary.lock());
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
        if *temporary != overrides {
            *temporary = overrides;
            let rules = RuleSet::clone(&self.in_force.load());
            self.put_in_force(rules, &temporary);
        }
    }

    /// Puts rules in force, with what is known of them. Called under the lock of the overrides.
    fn put_in_force(&self, rules: RuleSet, temporary: &TemporaryOverrides) {
        let terms = StateTerms {
            clock: &self.clock,
            temporary,
            digest: self.digest.as_ref(),
            observer: self.observer.as_ref(),
        };
        let in_force = InForce::new(rules, Some(&self.in_force.load()), &terms);
        let in_force = Arc::new(in_force);
        self.in_force.store(Arc::clone(&in_force));
        if let Some(observer) = &self.observer {
            observer.rules_changed(&in_force);
        }
        if let Some(store) = self.store.remote() {
            store.rules_changed();
        }
    }

    /// The store that is asked.
    pub fn store(&self) -> &Store {
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
