//! The decisions about the parts of one request, and about the request as a whole.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate_core::Outcome;
use tidegate_core::headers::{HeaderSettings, Headers, Item};
use tidegate_core::outcome::deciding;

use super::{Decision, LimitOutcome};
use crate::reason::Reason;

/// What was decided about each part of a request, in their order.
#[derive(Debug, Clone)]
pub struct Decisions(DecisionList);

/// Not a `SmallVec`, out of which a decision would be moved several times.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "most requests have one part, and need no allocation"
)]
enum DecisionList {
    One(Decision),
    Many(Vec<Decision>),
}

impl Decisions {
    #[inline]
    pub(super) fn one(decision: Decision) -> Self {
        Self(DecisionList::One(decision))
    }

    pub(super) fn many(mut decisions: SmallVec<[Decision; 1]>) -> Self {
        match decisions.pop() {
            Some(decision) if decisions.is_empty() => Self::one(decision),
            last => {
                decisions.extend(last);
                Self(DecisionList::Many(decisions.into_vec()))
            }
        }
    }

    fn list(&self) -> &[Decision] {
        match &self.0 {
            DecisionList::One(decision) => std::slice::from_ref(decision),
            DecisionList::Many(decisions) => decisions,
        }
    }

    /// The decision, if there is one part.
    pub(super) fn only(&self) -> Option<&Decision> {
        match self.list() {
            [decision] => Some(decision),
            _ => None,
        }
    }

    /// The decision about the first part, which is the only one of most requests.
    pub(super) fn first(&self) -> &Decision {
        &self.list()[0]
    }

    #[inline]
    pub(super) fn into_first(self) -> Decision {
        match self.0 {
            DecisionList::One(decision) => decision,
            DecisionList::Many(mut decisions) => decisions.swap_remove(0),
        }
    }

    /// What was decided about each part.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Decision> {
        self.list().iter()
    }

    /// Whether the request may go on: no part is denied. Of parts whose limits are quotas it is enough
    /// that one is allowed.
    pub fn is_allowed(&self) -> bool {
        if let Some(decision) = self.only() {
            return decision.is_allowed();
        }
        let is_quota = |decision: &&Decision| is_quota(decision);
        let mut others = self.iter().filter(|decision| !is_quota(decision));
        let mut quotas = self.iter().filter(is_quota).peekable();
        others.all(Decision::is_allowed)
            && (quotas.peek().is_none() || quotas.any(Decision::is_allowed))
    }

    /// Whether each part is under a quota: then it is denied only together with all other quotas.
    pub fn quotas(&self) -> impl ExactSizeIterator<Item = bool> {
        self.iter().map(is_quota)
    }

    /// Whether a part is denied only because the store could not answer and its rule says `deny` then.
    pub fn is_failed(&self) -> bool {
        self.iter().any(Decision::is_failed)
    }

    /// Whether the call fails instead of being answered: see [`Decision::fails_call`].
    pub fn fail_call(&self) -> bool {
        self.iter().any(Decision::fails_call)
    }

    /// The outcome that decided, of all parts: see [`Decision::headline`].
    pub fn headline(&self) -> Option<LimitOutcome<'_>> {
        if let Some(decision) = self.only() {
            return decision.headline();
        }
        let is_allowed = self.is_allowed();
        // A quota that is exceeded did not deny the request if a part without one did.
        let speaking = || {
            self.iter()
                .filter(|decision| decision.is_allowed() == is_allowed)
        };
        let has_other = !is_allowed && speaking().any(|decision| !is_quota(decision));
        let decisive = || speaking().filter(|decision| !has_other || !is_quota(decision));
        let headlines = || decisive().filter_map(Decision::headline);
        let outcomes: SmallVec<[Outcome; 4]> = headlines().map(|limit| *limit.outcome).collect();
        headlines().nth(deciding(&outcomes))
    }

    /// Why the request is denied: the reason of the part that decided. None if it is allowed.
    pub fn reason(&self) -> Option<Reason> {
        if self.is_allowed() {
            return None;
        }
        self.headline().and_then(|limit| limit.reason)
    }

    /// The headers that describe it to a client, as names in lower case and values.
    pub fn headers(&self, settings: &HeaderSettings) -> Headers {
        if let [decision] = self.list() {
            return decision.headers(settings);
        }
        self.with_items(|items, headline| settings.headers(items, headline))
    }

    /// The headers that describe it to a client by unit, as names in lower case and values.
    pub fn headers_by_unit(&self, settings: &HeaderSettings) -> Vec<(String, String)> {
        if !settings.are_by_unit() {
            return Vec::new();
        }
        if let [decision] = self.list() {
            return decision.headers_by_unit(settings);
        }
        self.with_items(|items, _| settings.headers_by_unit(items))
    }

    /// The limits that are reported, and the index of the one that decides.
    fn with_items<T>(&self, read: impl FnOnce(&[Item<'_>], usize) -> T) -> T {
        // A quota that is used up says nothing about a request that goes on.
        let is_allowed = self.is_allowed();
        let reported = self
            .iter()
            .filter(|decision| !is_allowed || decision.is_allowed());
        let limits = reported.flat_map(Decision::limits);
        let enforced: Vec<LimitOutcome<'_>> = limits.filter(|limit| !limit.is_shadow).collect();
        let names: Vec<Cow<'_, str>> = enforced.iter().map(LimitOutcome::name).collect();
        let both = enforced.iter().zip(&names);
        let items: Vec<Item<'_>> = both
            .map(|(limit, name)| Item {
                name,
                limit: limit.limit,
                unit: limit.unit(),
                outcome: limit.outcome,
            })
            .collect();
        let outcomes: Vec<Outcome> = enforced.iter().map(|limit| *limit.outcome).collect();
        read(&items, deciding(&outcomes))
    }
}

/// Whether a part is under a quota, also under one that only counts.
fn is_quota(decision: &Decision) -> bool {
    let first = decision.rules().first();
    first.is_some_and(|rule| decision.in_force().at(rule.rule).is_quota())
}
