//! A request of several parts, such as the descriptors that Envoy sends in one call.
//!
//! By rules, the parts are one request: all of them are charged or none is. By descriptors, each is
//! charged on its own. What a part has spent already is taken as far as it fits, by rules that settle.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::headers::{HeaderSettings, Headers, Item};
use tidegate_core::{Charge, Outcome, Store, Timestamp};

use super::decision::Slot;
use super::local::{LocalCharge, is_concurrency};
use super::{
    Answer, Asking, Claim, Claims, Decision, Demand, Gate, Slots, charges, claims, fill,
    is_allowed, limits, observe, open_slots, settle,
};
use crate::attributes::Attributes;
use crate::decision::deciding;
use crate::reason::Reason;
use crate::rules::{FrontEnd, Grant, MissingNames, OnStoreFailure, Rule, RuleSet, Share};

/// One part of a request.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    /// What is known of it. A cost of zero asks, and is denied when nothing remains.
    pub attributes: Attributes<'a>,
    /// What the caller grants, in the place of what the rules say.
    pub grant: Option<Grant>,
    /// Whether the cost has been spent already. What does not fit is then taken as far as it goes, by
    /// rules that [settle](Rule::settles).
    pub is_spent: bool,
}

impl<'a> Part<'a> {
    /// A part that the rules decide and that has spent nothing yet.
    pub fn new(attributes: Attributes<'a>) -> Self {
        Self {
            attributes,
            grant: None,
            is_spent: false,
        }
    }

    /// Whether it is decided like a request of its own.
    fn is_plain(&self) -> bool {
        self.grant.is_none() && !self.is_spent && self.attributes.cost() > 0
    }
}

/// What was decided about each part of a request, in their order.
#[derive(Debug, Clone)]
pub struct Decisions {
    list: SmallVec<[Decision; 1]>,
}

impl Decisions {
    /// What was decided about each part.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Decision> {
        self.list.iter()
    }

    /// Whether the request may go on: no part is denied. Of parts whose limits are quotas it is enough
    /// that one is allowed.
    pub fn is_allowed(&self) -> bool {
        let is_quota = |decision: &&Decision| is_quota(decision);
        let mut others = self.list.iter().filter(|decision| !is_quota(decision));
        let mut quotas = self.list.iter().filter(is_quota).peekable();
        others.all(Decision::is_allowed)
            && (quotas.peek().is_none() || quotas.any(Decision::is_allowed))
    }

    /// Whether each part is under a quota: then it is denied only together with all other quotas.
    pub fn quotas(&self) -> impl ExactSizeIterator<Item = bool> {
        self.list.iter().map(is_quota)
    }

    /// Whether a part is denied only because the store could not answer and its rule says `deny` then.
    pub fn is_failed(&self) -> bool {
        self.list.iter().any(Decision::is_failed)
    }

    /// Why the request is denied: the reason of the part that decided. None if it is allowed.
    pub fn reason(&self) -> Option<Reason> {
        if self.is_allowed() {
            return None;
        }
        // A quota that is exceeded did not deny the request if a part without one did.
        let denied = || self.list.iter().filter(|decision| decision.is_denied());
        let has_other = denied().any(|decision| !is_quota(decision));
        let decisive = || denied().filter(|decision| !has_other || !is_quota(decision));
        let headlines = || decisive().filter_map(Decision::headline);
        let outcomes: SmallVec<[Outcome; 4]> = headlines().map(|answer| *answer.outcome).collect();
        let decisive = headlines().nth(deciding(&outcomes));
        decisive.and_then(|answer| answer.reason)
    }

    /// Counts what each rule said to a request of this front end.
    pub fn count(&self, front_end: FrontEnd) {
        for decision in &self.list {
            decision.count(front_end);
        }
    }

    /// The headers that tell a client about it, as names in lower case and values.
    pub fn headers(&self, settings: &HeaderSettings) -> Headers {
        if let [decision] = self.list.as_slice() {
            return decision.headers(settings);
        }
        // A quota that is used up says nothing about a request that goes on.
        let is_allowed = self.is_allowed();
        let told = self
            .list
            .iter()
            .filter(|decision| !is_allowed || decision.is_allowed());
        let answers = told.flat_map(Decision::answers);
        let enforced: Vec<Answer<'_>> = answers.filter(|answer| !answer.is_shadow).collect();
        let names: Vec<Cow<'_, str>> = enforced.iter().map(Answer::name).collect();
        let both = enforced.iter().zip(&names);
        let items: Vec<Item<'_>> = both
            .map(|(answer, name)| Item {
                name,
                limit: answer.limit,
                outcome: answer.outcome,
            })
            .collect();
        let outcomes: Vec<Outcome> = enforced.iter().map(|answer| *answer.outcome).collect();
        settings.headers(&items, deciding(&outcomes))
    }
}

/// Whether a part is under a quota, also under one that only counts.
fn is_quota(decision: &Decision) -> bool {
    let mut answers = decision.answers();
    answers.next().is_some_and(|answer| answer.rule.is_quota())
}

impl<S: Store> Gate<S> {
    /// Decides a request of several parts, by [rules](Self::rules) that were just asked for.
    ///
    /// By rules, it charges every limit of every part, or none; parts that are about the same state are
    /// charged the sum of their costs. By descriptors, each part is charged on its own.
    pub async fn decide_parts(&self, rules: &Arc<RuleSet>, parts: &[Part<'_>]) -> Decisions {
        // In boxes, so that one part, which is all that most requests have, does not carry what several need.
        let list = match parts {
            [part] if part.is_plain() => {
                let now = self.time_of(&part.attributes);
                let claims = claims(rules, &part.attributes, now);
                let rules = Arc::clone(rules);
                let decision = self.decide_claims(rules, &claims, &part.attributes, now);
                let mut list = SmallVec::new();
                list.push(decision.await);
                list
            }
            _ if rules.is_by_descriptors() => Box::pin(self.decide_each(rules, parts)).await,
            _ => Box::pin(self.decide_together(rules, parts)).await,
        };
        Decisions { list }
    }

    /// Decides each part on its own, all at the same time. A limit whose name another one replaces
    /// does not apply.
    async fn decide_each(
        &self,
        rules: &Arc<RuleSet>,
        parts: &[Part<'_>],
    ) -> SmallVec<[Decision; 1]> {
        let found: SmallVec<[Option<&Rule>; 4]> = parts
            .iter()
            // What a caller brings has no name, and replaces nothing.
            .map(|part| match part.grant {
                Some(_) => None,
                None => rules.descriptor_rule(&part.attributes),
            })
            .collect();
        let is_replaced = |place: usize| {
            let name = found[place].map_or("", Rule::limit_name);
            let mut replaced = found.iter().flatten().flat_map(|rule| rule.replaces());
            !name.is_empty() && replaced.any(|one| one == name)
        };
        let deciding = parts.iter().enumerate().map(|(place, part)| async move {
            if is_replaced(place) {
                let none = Decision::new(Arc::clone(rules), Slots::new(), None);
                return Some(none);
            }
            let mut decided = self
                .decide_together(rules, std::slice::from_ref(part))
                .await;
            decided.pop()
        });
        let decided = settle::all(deciding).await;
        decided.into_iter().flatten().collect()
    }

    async fn decide_together(
        &self,
        rules: &Arc<RuleSet>,
        parts: &[Part<'_>],
    ) -> SmallVec<[Decision; 1]> {
        let at = parts.iter().find_map(|part| part.attributes.time());
        let now = at.unwrap_or_else(|| self.clock.now());
        let (rules, claims) = claims_of(rules, parts, now);
        let lease = self.new_lease(&rules, &claims);
        let mut slots = open_slots(&rules, &claims, now);
        let asking = Asking {
            rules: &rules,
            claims: &claims,
            at,
            lease,
        };
        let is_denied = !self.ask_only(&asking, &mut slots).await;
        self.ask_enforced(&asking, &mut slots, is_denied).await;
        let lease = lease.filter(|_| is_allowed(&slots));
        let asking = Asking { lease, ..asking };
        self.ask_shadows(&asking, &mut slots).await;
        self.take_spent(&asking, parts, &mut slots).await;
        observe::note_use(&rules, &slots);
        split(&rules, &claims, &slots, parts.len(), asking)
    }

    /// Asks those who take nothing whether anything remains. Whether it does for all of them.
    async fn ask_only(&self, asking: &Asking<'_, '_>, slots: &mut Slots) -> bool {
        let is_asked = |claim: &Claim<'_>| claim.is_asked;
        let charges = charges(asking.rules, asking.claims, is_asked);
        if !charges.is_empty() {
            let request = asking.request(&charges);
            let answered = match self.settle_before(&request).await {
                Ok(()) => self.store.peek(&request).await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(outcomes) => fill(slots, |slot| asking.of(slot).is_asked, &outcomes),
                Err(_) => self.go_on(asking, is_asked, slots, true),
            }
        }
        let mut asked = slots.iter().filter(|slot| asking.of(slot).is_asked);
        asked.all(|slot| slot.is_shadow || slot.outcome.allowed)
    }

    /// Takes, by rules that settle, what was spent already and was not charged, because it did not fit or
    /// because the whole request was denied for what others have spent.
    async fn take_spent(&self, asking: &Asking<'_, '_>, parts: &[Part<'_>], slots: &mut Slots) {
        if !parts.iter().any(|part| part.is_spent) {
            return;
        }
        let takes = |part: &&Part<'_>| part.attributes.cost() > 0;
        let is_all_spent = parts.iter().filter(takes).all(|part| part.is_spent);
        let is_whole_denied = !is_allowed(slots);
        let mut chosen: SmallVec<[bool; 8]> = SmallVec::new();
        for claim in asking.claims {
            let is_denied = |slot: &Slot| {
                let other = asking.of(slot);
                let is_same = if claim.is_shadow {
                    std::ptr::eq(other, claim)
                } else {
                    !other.is_shadow && other.part == claim.part
                };
                is_same && !slot.outcome.allowed
            };
            let is_uncharged = slots.iter().any(is_denied)
                || (!claim.is_shadow && is_whole_denied && is_all_spent);
            let settles = asking.rules.at(claim.rule).settles() && parts[claim.part].is_spent;
            chosen.push(settles && !claim.is_asked && is_uncharged);
        }
        let places = 0..slots.len();
        let settled: SmallVec<[usize; 4]> = places
            .filter(|place| slots[*place].is_charged && chosen[slots[*place].claim])
            .collect();
        self.settle_slots(asking, slots, &settled).await;
    }

    /// Settles what these slots were to be charged. Their answers stay what they are, but for what is
    /// left afterwards.
    async fn settle_slots(&self, asking: &Asking<'_, '_>, slots: &mut Slots, settled: &[usize]) {
        let rules = asking.rules;
        let charge = |slot: &Slot| {
            let claim = asking.of(slot);
            let limit = limits(rules, claim).get(slot.limit)?;
            let Demand::Charge { key, cost } = &claim.demand else {
                return None;
            };
            let scope = rules.at(claim.rule).scope();
            let key = key.as_ref();
            (!is_concurrency(limit)).then_some(Charge {
                scope,
                limit,
                key,
                cost: *cost,
            })
        };
        let mut asked: SmallVec<[(usize, Charge<'_>); 4]> = SmallVec::new();
        for place in settled {
            let slot = &slots[*place];
            let Some(charge) = charge(slot) else { continue };
            if slot.is_degraded {
                self.settle_locally(asking, slot, &charge);
            } else {
                asked.push((*place, charge));
            }
        }
        if asked.is_empty() {
            return;
        }
        let charges: SmallVec<[Charge<'_>; 4]> = asked.iter().map(|(_, charge)| *charge).collect();
        match self.store.settle(&asking.request(&charges)).await {
            Ok(outcomes) => {
                for ((place, _), outcome) in asked.iter().zip(&outcomes) {
                    let known = &mut slots[*place].outcome;
                    known.remaining = outcome.remaining;
                    known.reset_at = outcome.reset_at;
                    // One that fits is counted now, and the request is denied by others.
                    if !known.allowed {
                        known.retry = outcome.retry.max(known.retry);
                    }
                }
            }
            Err(error) if error.left_nothing() => {
                for (place, charge) in &asked {
                    self.settle_locally(asking, &slots[*place], charge);
                }
            }
            // It may have happened.
            Err(_) => {}
        }
    }

    fn settle_locally(&self, asking: &Asking<'_, '_>, slot: &Slot, charge: &Charge<'_>) {
        if asking.rules.at(slot.rule).on_store_failure() != OnStoreFailure::Local {
            return;
        }
        let share = if let Some(limit) = &slot.moved {
            Some(Share::of(charge.scope, limit, self.instances()))
        } else {
            let shares = asking.rules.shares(self.instances());
            let limits = shares.limits(slot.rule, slot.grant);
            limits.get(slot.limit).map(Arc::clone)
        };
        if let Some(share) = &share {
            let (key, cost) = (charge.key, charge.cost);
            self.local
                .settle(&LocalCharge { share, key, cost }, asking.at);
        }
    }
}

/// What the rules, or what callers bring, ask of each part.
fn claims_of<'a>(
    rules: &Arc<RuleSet>,
    parts: &'a [Part<'_>],
    now: Timestamp,
) -> (Arc<RuleSet>, Claims<'a>) {
    let mut all = Claims::new();
    // The rules that matter here and those that callers brought, if any did.
    let mut few: Vec<Arc<Rule>> = Vec::new();
    let has_brought = parts.iter().any(|part| part.grant.is_some());
    for (place, part) in parts.iter().enumerate() {
        let mut own = match &part.grant {
            Some(_) if !rules.knows_domain(&part.attributes) => Claims::new(),
            Some(grant) => {
                let (rule, key) = rules.brought(grant, &part.attributes);
                few.push(Arc::new(rule));
                let (key, cost) = (Cow::Owned(key), part.attributes.cost());
                let demand = match grant {
                    Grant::Unlimited => None,
                    Grant::Blocked => Some(Demand::Nothing),
                    Grant::Limits(_) => Some(Demand::Charge { key, cost }),
                };
                let claim = demand.map(|demand| brought(few.len() - 1, demand));
                claim.into_iter().collect()
            }
            None => {
                let mut own = claims(rules, &part.attributes, now);
                for claim in own.iter_mut().filter(|_| has_brought) {
                    few.push(Arc::clone(rules.shared(claim.rule)));
                    claim.rule = few.len() - 1;
                }
                own
            }
        };
        for claim in &mut own {
            claim.part = place;
            claim.is_asked = part.attributes.cost() == 0;
            if let (true, Demand::Charge { cost, .. }) = (claim.is_asked, &mut claim.demand) {
                *cost = 1;
            }
        }
        all.append(&mut own);
    }
    if has_brought {
        return (Arc::new(RuleSet::unindexed(few)), all);
    }
    (Arc::clone(rules), all)
}

/// The claim of a rule that a caller brought.
fn brought(rule: usize, demand: Demand<'_>) -> Claim<'_> {
    Claim {
        rule,
        grant: 0,
        demand,
        is_shadow: false,
        moved: None,
        part: 0,
        is_asked: false,
        missing: MissingNames::default(),
    }
}

/// The decision about each part, from the answers to all of them.
fn split(
    rules: &Arc<RuleSet>,
    claims: &Claims<'_>,
    slots: &Slots,
    parts: usize,
    asking: Asking<'_, '_>,
) -> SmallVec<[Decision; 1]> {
    let of_part = |part: usize| -> Slots {
        let own = slots.iter().filter(|slot| claims[slot.claim].part == part);
        own.cloned().collect()
    };
    (0..parts)
        .map(|part| Decision::new(Arc::clone(rules), of_part(part), asking.lease))
        .collect()
}
