//! The gate: the story of a request, from its attributes to the decision.
//!
//! [`Gate::decide`] is the only door for requests that rules are about. It does not fail: when the
//! store does, each rule says what happens, and the decision says so. Who brings a limit of his own
//! enters half way, at [`Gate::charge`].

mod charge;
mod decision;
mod failure;
mod local;
mod observe;
mod owed;
mod parts;
mod receipt;
mod reset;
mod settle;

pub use charge::Charged;
pub use decision::{Answer, Decision};
pub use observe::{Feedback, FeedbackError};
pub use parts::{Decisions, Part};
pub use receipt::Receipt;
pub use reset::{Reset, ResetCounter, ResetError};
pub use settle::Unsettled;

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tidegate_core::{
    Charge, Clock, LeaseId, Limit, Outcome, Outcomes, Request, Retry, Store, StoreError,
    SystemClock, Timestamp,
};

use crate::adaptive::AdaptiveLimit;
use crate::attributes::Attributes;
use crate::rules::{Facts, Grant, Key, MissingNames, Mode, RuleSet, add_one};
use decision::Slot;
use local::{Local, is_concurrency};

/// Decides requests by rules, over a store.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tidegate::document::Source;
/// use tidegate::rules::{RuleSet, RuleSettings};
/// use tidegate::{Attributes, Gate, MemoryStore};
///
/// let source = Source::new("rules.yaml", "
/// rules:
///   - {id: per-user, match: {path: /v1/**}, per: [user_id], missing: deny, limit: 1/minute}
/// ");
/// let (rules, problems) = RuleSet::read(&source, &RuleSettings::default());
/// let gate = Gate::new(MemoryStore::new(), rules.expect("no problems"));
///
/// let mut attributes = Attributes::new();
/// attributes.insert("path", "/v1/orders")?;
/// attributes.insert("user_id", "u1")?;
/// assert!(gate.decide(&attributes).await.is_allowed());
/// let denied = gate.decide(&attributes).await;
/// assert_eq!(denied.rule(), Some("per-user"));
/// # Ok::<(), tidegate::AttributeError>(()) }).unwrap();
/// ```
pub struct Gate<S> {
    store: S,
    /// Counts for rules that go on by themselves while the store cannot answer.
    local: Local,
    rules: ArcSwap<RuleSet>,
    clock: Arc<dyn Clock>,
    instances: u64,
}

/// What one rule asks of a request.
struct Claim<'a> {
    /// Which rule, and which of its grants.
    rule: usize,
    grant: usize,
    demand: Demand<'a>,
    is_shadow: bool,
    /// The limit of the moment, of a rule whose limit moves.
    moved: Option<Arc<Limit>>,
    /// Which part of the request it is about.
    part: usize,
    /// Whether it is only asked, and takes nothing.
    is_asked: bool,
    /// The attributes for lack of which it is denied.
    missing: MissingNames,
}

enum Demand<'a> {
    /// To be charged on the state with this key.
    Charge { key: Cow<'a, str>, cost: u64 },
    /// To be denied, whatever was used.
    Nothing,
}

/// What the store is asked for one request.
#[derive(Clone, Copy)]
struct Asking<'r, 'a> {
    rules: &'r RuleSet,
    claims: &'r Claims<'a>,
    at: Option<Timestamp>,
    lease: Option<LeaseId>,
}

impl<'r, 'a> Asking<'r, 'a> {
    fn request<'c>(&self, charges: &'c [Charge<'c>]) -> Request<'c> {
        Request {
            charges,
            at: self.at,
            lease: self.lease,
        }
    }

    /// The claim that a slot answers.
    fn of(&self, slot: &Slot) -> &'r Claim<'a> {
        &self.claims[slot.claim]
    }
}

// Most requests meet one limit or two, and what they carry is moved with each step.
type Claims<'a> = SmallVec<[Claim<'a>; 2]>;
type Slots = SmallVec<[Slot; 2]>;
type Charges<'a> = SmallVec<[Charge<'a>; 2]>;

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
            local: Local::new(Arc::clone(&clock)),
            rules: ArcSwap::from_pointee(rules),
            clock,
            instances: 1,
        }
    }

    /// The same gate, one of at least so many that share the store. By
    /// [`OnStoreFailure::Local`](crate::rules::OnStoreFailure::Local) each grants its part of a limit; if the
    /// store knows of more, a smaller one.
    #[must_use]
    pub fn with_instances(self, instances: u64) -> Self {
        Self { instances, ..self }
    }

    /// Decides a request: charges every limit that applies to it, or none.
    pub async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let rules = self.rules.load_full();
        let now = self.time_of(attributes);
        let claims = claims(&rules, attributes, now);
        self.decide_claims(rules, &claims, attributes, now).await
    }

    /// [Decides](Self::decide) a request, and keeps what it takes to give back or settle afterwards what
    /// it was charged.
    pub async fn decide_with_receipt(&self, attributes: &Attributes<'_>) -> Receipt {
        self.decide_by(self.rules.load_full(), attributes).await
    }

    /// [Decides](Self::decide_with_receipt) a request within the call, by [rules](Self::rules) that were just
    /// asked for, if the store never waits for anything. Nothing, and nothing charged, with one that may.
    pub fn decide_at_once(
        &self,
        rules: Arc<RuleSet>,
        attributes: &Attributes<'_>,
    ) -> Option<Receipt> {
        if !self.store.answers_at_once() {
            return None;
        }
        let deciding = pin!(self.decide_by(rules, attributes));
        match deciding.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(receipt) => Some(receipt),
            Poll::Pending => None,
        }
    }

    async fn decide_by(&self, rules: Arc<RuleSet>, attributes: &Attributes<'_>) -> Receipt {
        let now = self.time_of(attributes);
        let claims = claims(&rules, attributes, now);
        let decision = self.decide_claims(rules, &claims, attributes, now).await;
        Receipt::new(decision, &claims, attributes)
    }

    fn time_of(&self, attributes: &Attributes<'_>) -> Timestamp {
        attributes.time().unwrap_or_else(|| self.clock.now())
    }

    async fn decide_claims(
        &self,
        rules: Arc<RuleSet>,
        claims: &Claims<'_>,
        attributes: &Attributes<'_>,
        now: Timestamp,
    ) -> Decision {
        let lease = self.new_lease(&rules, claims);
        let mut slots = open_slots(&rules, claims, now);
        let asking = Asking {
            rules: &rules,
            claims,
            at: attributes.time(),
            lease,
        };
        self.ask_enforced(&asking, &mut slots, false).await;
        let asking = Asking {
            lease: lease.filter(|_| is_allowed(&slots)),
            ..asking
        };
        self.ask_shadows(&asking, &mut slots).await;
        observe::note_use(&rules, &slots);

        Decision::new(rules, slots, lease)
    }

    /// Charges all enforced rules together. If one denies whatever was used, or the request is denied
    /// already, the others are asked and not charged.
    async fn ask_enforced(&self, asking: &Asking<'_, '_>, slots: &mut Slots, is_denied: bool) {
        let is_mine = |claim: &Claim<'_>| !claim.is_shadow && !claim.is_asked;
        let charges = charges(asking.rules, asking.claims, is_mine);
        if charges.is_empty() {
            return;
        }
        let request = asking.request(&charges);
        let grants_nothing =
            |claim: &Claim<'_>| !claim.is_shadow && matches!(claim.demand, Demand::Nothing);
        let is_denied = is_denied || asking.claims.iter().any(grants_nothing);
        let answered = match self.settle_before(&request).await {
            Ok(()) if is_denied => self.store.peek(&request).await,
            Ok(()) => self.store.charge(&request).await,
            Err(error) => Err(error),
        };
        match answered {
            Ok(outcomes) => fill(slots, |slot| is_mine(asking.of(slot)), &outcomes),
            Err(_) => self.go_on(asking, is_mine, slots, is_denied),
        }
    }

    /// Charges each shadow rule on its own. Nobody holds a lease for a request that does not go on.
    async fn ask_shadows(&self, asking: &Asking<'_, '_>, slots: &mut Slots) {
        let is_mine = |claim: &Claim<'_>| claim.is_shadow && !claim.is_asked;
        if !asking.claims.iter().any(is_mine) {
            return;
        }
        // All at the same time, so that many of them take no longer than one.
        let shadows = asking.claims.iter().enumerate();
        let shadows = shadows.filter(|(_, claim)| is_mine(claim));
        let questions = shadows.map(|(place, claim)| async move {
            let charges = charges(asking.rules, asking.claims, |other| {
                std::ptr::eq(other, claim)
            });
            if charges.is_empty() {
                return None;
            }
            let request = asking.request(&charges);
            let answered = match self.settle_before(&request).await {
                Ok(()) => self.store.charge(&request).await,
                Err(error) => Err(error),
            };
            Some((place, answered))
        });
        for (place, answered) in settle::all(questions).await.into_iter().flatten() {
            if let Ok(outcomes) = answered {
                fill(slots, |slot| slot.claim == place, &outcomes);
            } else {
                let asked: &Claim<'_> = &asking.claims[place];
                let is_mine = |claim: &Claim<'_>| std::ptr::eq(claim, asked);
                self.go_on(asking, is_mine, slots, false);
            }
        }
    }

    /// A name for what a request will hold, if a limit on holders is to be taken and not only asked.
    fn new_lease(&self, rules: &RuleSet, claims: &Claims<'_>) -> Option<LeaseId> {
        let holds = |claim: &Claim<'_>| limits(rules, claim).iter().any(is_concurrency);
        if !claims.iter().any(holds) {
            return None;
        }
        let mut held = charges(rules, claims, holds);
        held.retain(|charge| charge.cost > 0 && is_concurrency(charge.limit));
        (!held.is_empty()).then(|| self.store.lease_for(&held))
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// Puts other rules in force, at once and whole. What was used stays used, and what was counted by
    /// rules that stay goes on being counted.
    pub fn replace_rules(&self, rules: RuleSet) {
        let rules = rules.counting_on(&self.rules.load());
        rules.set_clock(&self.clock);
        self.rules.store(Arc::new(rules));
        self.store.rules_changed();
    }

    /// The store that is asked.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Releases a lease. False if it is unknown or has ended.
    ///
    /// One that was taken without the store ends without it.
    pub async fn release(&self, lease: LeaseId) -> Result<bool, StoreError> {
        let is_local = self.local.release(lease);
        // The store may hold it too: for another rule, or because it was charged and could not say so.
        if is_local && !self.store.is_up() {
            return Ok(true);
        }
        let released = self.store.release(lease).await;
        if is_local { Ok(true) } else { released }
    }

    /// Lets a lease last its whole time again. False if it is unknown or has ended.
    pub async fn renew(&self, lease: LeaseId) -> Result<bool, StoreError> {
        let is_local = self.local.renew(lease);
        if is_local && !self.store.is_up() {
            return Ok(true);
        }
        let renewed = self.store.renew(lease).await;
        if is_local { Ok(true) } else { renewed }
    }

    /// Frees the memory of what this instance counted by itself and nobody needs any more.
    pub fn sweep(&self) {
        self.local.sweep();
    }
}

/// What the rules that apply to a request ask of it, in their order.
fn claims<'a>(rules: &RuleSet, attributes: &'a Attributes<'_>, now: Timestamp) -> Claims<'a> {
    let mut claims = Claims::new();
    let facts = Facts::of(attributes);
    for place in rules.candidates(attributes) {
        let place = place as usize;
        let rule = rules.at(place);
        if !rule.is_alive(now) {
            continue;
        }
        match rule.matches(&facts) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => {
                add_one(&rule.counts().condition_failures);
                continue;
            }
        }
        if rule.is_excepted(&facts) {
            continue;
        }
        let grant = rule.grant(attributes);
        let mut missing = MissingNames::default();
        let demand = match (rule.key(attributes), &rule.grants()[grant]) {
            (Key::Skipped, _) | (Key::Known(_), Grant::Unlimited) => continue,
            (Key::Denied, _) => {
                missing = rule.missing_of(attributes);
                Demand::Nothing
            }
            (Key::Known(_), Grant::Blocked) => Demand::Nothing,
            (Key::Known(key), Grant::Limits(_)) => {
                let (cost, is_unread) = rule.cost(attributes);
                if is_unread {
                    add_one(&rule.counts().unread_costs);
                }
                Demand::Charge { key, cost }
            }
        };
        let is_charged = matches!(demand, Demand::Charge { .. });
        let adaptive = rule.adaptive().filter(|_| is_charged);
        claims.push(Claim {
            rule: place,
            grant,
            demand,
            moved: adaptive.map(AdaptiveLimit::current),
            is_shadow: rule.mode() == Mode::Shadow,
            part: 0,
            is_asked: false,
            missing,
        });
    }
    claims
}

/// The limits that a claim is about; none where everything is denied.
fn limits<'r>(rules: &'r RuleSet, claim: &'r Claim<'_>) -> &'r [Limit] {
    if let Some(moved) = &claim.moved {
        return std::slice::from_ref(moved);
    }
    match (&claim.demand, &rules.at(claim.rule).grants()[claim.grant]) {
        (Demand::Charge { .. }, Grant::Limits(limits)) => limits,
        _ => &[],
    }
}

/// A place for the answer of each limit, and the answers of those that deny everything.
fn open_slots(rules: &RuleSet, claims: &Claims<'_>, now: Timestamp) -> Slots {
    let mut slots = Slots::new();
    for (place, claim) in claims.iter().enumerate() {
        let limits = limits(rules, claim);
        for limit in 0..limits.len().max(1) {
            slots.push(Slot {
                claim: place,
                rule: claim.rule,
                grant: claim.grant,
                limit,
                outcome: blocked(now),
                is_charged: !limits.is_empty(),
                is_shadow: claim.is_shadow,
                is_degraded: false,
                failure: None,
                share: None,
                moved: claim.moved.clone(),
                missing: claim.missing,
            });
        }
    }
    slots
}

/// The answer of a rule that grants nothing.
fn blocked(now: Timestamp) -> Outcome {
    Outcome {
        allowed: false,
        limit: 0,
        remaining: 0,
        retry: Retry::Never,
        reset_at: now,
        delay: tidegate_core::Micros::ZERO,
        at: now,
    }
}

/// The charges of the claims that are chosen, in the order of their slots.
fn charges<'c>(
    rules: &'c RuleSet,
    claims: &'c Claims<'_>,
    chosen: impl Fn(&Claim<'_>) -> bool,
) -> Charges<'c> {
    let mut charges = Charges::new();
    for claim in claims.iter().filter(|claim| chosen(claim)) {
        let Demand::Charge { key, cost } = &claim.demand else {
            continue;
        };
        let scope = rules.at(claim.rule).scope();
        let charge = |limit| Charge {
            scope,
            limit,
            key: key.as_ref(),
            cost: *cost,
        };
        charges.extend(limits(rules, claim).iter().map(charge));
    }
    charges
}

/// Whether no enforced rule denies.
fn is_allowed(slots: &Slots) -> bool {
    slots
        .iter()
        .all(|slot| slot.is_shadow || slot.outcome.allowed)
}

/// Writes the outcomes down in the slots that they answer.
fn fill(slots: &mut Slots, chosen: impl Fn(&Slot) -> bool, outcomes: &Outcomes) {
    let open = slots
        .iter_mut()
        .filter(|slot| slot.is_charged && chosen(slot));
    for (slot, outcome) in open.zip(outcomes) {
        slot.outcome = *outcome;
    }
}

#[cfg(test)]
mod tests;
