//! Charges that Redis itself decides, one call each.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use smallvec::SmallVec;
use tidegate_core::algorithm::Form;
use tidegate_core::{Charge, Limit, Micros, Outcome, Outcomes, Request, Retry, Scope, StoreError};
use tokio::time::Instant;

use super::{Inner, Placed};
use crate::call::StepReply;
use crate::hints::{LONGEST, LONGEST_ACROSS_SLOTS};
use crate::wire::{Answer, Step};

/// How old an answer may be that stands in for one that nobody asks for.
const RECENT: Duration = Duration::from_secs(1);

/// Charges of a request whose states share a slot, by their places in the request.
pub(super) type Group = SmallVec<[usize; 4]>;

impl Inner {
    /// Charges all or none, in one step where the slots allow it.
    pub(super) async fn charge_exact(
        self: &Arc<Self>,
        request: &Request<'_>,
        placed: &[Placed<'_>],
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let groups = self.groups(placed);
        if groups.len() > 1 {
            return self.charge_across(request, placed, groups, deadline).await;
        }
        let slot = placed.first().map_or(0, |placed| placed.slot);
        let is_far = self.register_far(request, slot, deadline).await?;
        let make = || {
            let step = Step::charge(&self.keys, request);
            if is_far {
                step.registered_elsewhere()
            } else {
                step
            }
        };
        let reply = self.decide(request.charges, deadline, make).await?;
        let sent_at = reply.sent_at;
        let outcomes = outcomes(reply)?;
        if request.at.is_none() {
            self.heard(placed, &outcomes, sent_at);
        }
        Ok(outcomes)
    }

    /// Asks, and changes nothing.
    pub(super) async fn peek(
        &self,
        request: &Request<'_>,
        placed: &[Placed<'_>],
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let groups = self.groups(placed);
        if groups.len() <= 1 {
            let make = || Step::peek(&self.keys, request);
            return outcomes(self.decide(request.charges, deadline, make).await?);
        }
        let asked = try_join_all(groups.iter().map(|group| async {
            let charges = charges_of(request, group);
            let make = || Step::peek(&self.keys, &part_of(request, &charges));
            outcomes(self.decide(&charges, deadline, make).await?)
        }))
        .await?;
        Ok(in_order(request.charges.len(), &groups, &asked))
    }

    /// Charges what is known only afterwards.
    pub(super) async fn settle(
        &self,
        request: &Request<'_>,
        placed: &[Placed<'_>],
    ) -> Result<Outcomes, StoreError> {
        let deadline = self.router.deadline();
        let groups = self.groups(placed);
        let mut settled = Vec::with_capacity(groups.len());
        for group in &groups {
            let charges = charges_of(request, group);
            let make = || Step::settle(&self.keys, &part_of(request, &charges));
            match self.decide(&charges, deadline, make).await {
                Ok(reply) => settled.push(outcomes(reply)?),
                // Some of it is charged already, so it must not be taken for nothing.
                Err(StoreError::Unreachable(source) | StoreError::BadState(source))
                    if !settled.is_empty() =>
                {
                    return Err(StoreError::Lost(source));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(in_order(request.charges.len(), &groups, &settled))
    }

    /// Takes back what was charged.
    pub(super) async fn give_back(
        &self,
        request: &Request<'_>,
        placed: &[Placed<'_>],
        outcomes: &[Outcome],
    ) -> Result<(), StoreError> {
        if outcomes.iter().any(|outcome| !outcome.allowed) {
            return Ok(());
        }
        let deadline = self.router.deadline();
        for placed in placed {
            self.hints.forget(placed.name);
        }
        // What came from a pool goes back there while its lease lasts.
        let stays: Vec<bool> = placed
            .iter()
            .zip(outcomes)
            .map(|(placed, outcome)| {
                request.at.is_none()
                    && placed.charge.scope.is_leased()
                    && self.put_back(placed, outcome)
            })
            .collect();
        let groups = self.groups(placed);
        try_join_all(groups.iter().map(|group| async {
            let group: Group = group.iter().copied().filter(|at| !stays[*at]).collect();
            if group.is_empty() {
                return Ok(());
            }
            let charges = charges_of(request, &group);
            let given: Outcomes = group
                .iter()
                .filter_map(|at| outcomes.get(*at))
                .copied()
                .collect();
            let Some(step) = Step::give_back(&self.keys, &part_of(request, &charges), &given)
            else {
                return Ok(());
            };
            let slot = placed[group[0]].slot;
            let step = self.without_far_register(step, request, slot);
            self.router.step(step, deadline).await.map(drop)
        }))
        .await?;
        for placed in placed {
            self.hints.forget(placed.name);
        }
        Ok(())
    }

    /// Forgets what a key has used of a limit.
    pub(super) async fn forget(
        &self,
        scope: &Scope,
        limit: &Limit,
        key: &str,
    ) -> Result<(), StoreError> {
        let charge = Charge {
            scope,
            limit,
            key,
            cost: 0,
        };
        for placed in &self.placed(&[charge]) {
            self.hints.forget(placed.name);
            if let Some(shared) = self.pools.get(placed.name) {
                // What was taken in advance is part of what is forgotten.
                shared.pool.lock().forget();
            }
        }
        let step = Step::forget(&self.keys, scope, limit, key);
        let deadline = self.router.deadline();
        let forgotten = self.router.step(step, deadline).await;
        // Somebody may have been denied meanwhile.
        for placed in &self.placed(&[charge]) {
            self.hints.forget(placed.name);
        }
        forgotten.map(drop)
    }

    /// Remembers what was said.
    pub(super) fn heard(&self, placed: &[Placed<'_>], outcomes: &[Outcome], sent_at: Instant) {
        for (placed, outcome) in placed.iter().zip(outcomes) {
            let is_across =
                self.router.is_cluster() && self.across.read().contains(&placed.charge.scope.id());
            let longest = if is_across {
                LONGEST_ACROSS_SLOTS
            } else {
                LONGEST
            };
            let (limit, cost) = (placed.charge.limit, placed.cost);
            self.hints
                .heard(placed.name, limit, cost, outcome, sent_at, longest);
        }
    }

    /// The answer to a request that is known to be denied still; none if it has to be asked.
    pub(super) fn remembered_denial(&self, placed: &[Placed<'_>]) -> Option<Outcomes> {
        let denials: SmallVec<[Option<Outcome>; 4]> = placed
            .iter()
            .map(|placed| {
                self.hints
                    .denied(placed.name, placed.charge.limit, placed.cost)
            })
            .collect();
        if denials.iter().all(Option::is_none) {
            return None;
        }
        let answers = placed.iter().zip(denials).map(|(placed, denial)| {
            denial.or_else(|| {
                let recent = self.hints.recent(placed.name, RECENT)?;
                let fits = recent.remaining >= placed.cost;
                let is_same = recent.limit == placed.charge.limit.capacity();
                let holds = matches!(placed.charge.limit.form(), Form::Concurrency(_));
                (fits && is_same && !holds).then_some(Outcome {
                    allowed: true,
                    retry: Retry::Now,
                    delay: Micros::ZERO,
                    ..recent
                })
            })
        });
        answers.collect()
    }

    /// The charges by slot; all in one group where slots do not matter.
    pub(super) fn groups(&self, placed: &[Placed<'_>]) -> SmallVec<[Group; 2]> {
        let mut groups: SmallVec<[Group; 2]> = SmallVec::new();
        for (at, one) in placed.iter().enumerate() {
            let is_same = |group: &&mut Group| {
                !self.router.is_cluster()
                    || group
                        .first()
                        .is_some_and(|first| placed[*first].slot == one.slot)
            };
            match groups.iter_mut().find(is_same) {
                Some(group) => group.push(at),
                None => groups.push(Group::from_slice(&[at])),
            }
        }
        groups
    }
}

/// The charges of a group.
pub(super) fn charges_of<'a>(request: &Request<'a>, group: &[usize]) -> SmallVec<[Charge<'a>; 4]> {
    let charges = group.iter().filter_map(|at| request.charges.get(*at));
    charges.copied().collect()
}

/// The request with these charges only.
pub(super) fn part_of<'a>(request: &Request<'_>, charges: &'a [Charge<'a>]) -> Request<'a> {
    Request {
        charges,
        at: request.at,
        lease: request.lease,
    }
}

/// The outcomes of all groups, in the order of the request's charges.
pub(super) fn in_order(count: usize, groups: &[Group], answers: &[Outcomes]) -> Outcomes {
    let mut ordered: SmallVec<[Option<Outcome>; 4]> = SmallVec::from_elem(None, count);
    for (group, outcomes) in groups.iter().zip(answers) {
        for (at, outcome) in group.iter().zip(outcomes) {
            ordered[*at] = Some(*outcome);
        }
    }
    ordered.into_iter().flatten().collect()
}

/// The outcomes in a reply.
pub(super) fn outcomes(reply: StepReply) -> Result<Outcomes, StoreError> {
    match reply.answer {
        Answer::Outcomes(outcomes) => Ok(outcomes),
        _ => Err(StoreError::BadReply("outcomes were expected".into())),
    }
}
