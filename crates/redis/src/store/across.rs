//! All or nothing over several slots of a cluster: one slot after the other, and given back where a later
//! one denies.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Charge, Outcome, Outcomes, Request, Retry, StoreError, Timestamp};
use tokio::time::Instant;

use super::exact::{Group, charges_of, in_order, outcomes, part_of};
use super::{Inner, Placed};
use crate::wire::Step;

/// What was charged in some slots and is to be given back, unless the request goes on. Done even if whoever
/// asked has gone.
struct Charged<'s> {
    inner: &'s Arc<Inner>,
    parts: Vec<Step>,
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        if self.parts.is_empty() {
            return;
        }
        let (inner, parts) = (Arc::clone(self.inner), std::mem::take(&mut self.parts));
        self.inner.runtime.spawn(async move {
            inner.take_back(parts).await;
        });
    }
}

impl Inner {
    /// Charges one group after the other, the scarcest first.
    pub(super) async fn charge_across(
        self: &Arc<Self>,
        request: &Request<'_>,
        placed: &[Placed<'_>],
        mut groups: SmallVec<[Group; 2]>,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        self.note_across(placed);
        groups.sort_by_key(|group| {
            let remaining = group
                .iter()
                .map(|at| self.hints.remaining(placed[*at].name));
            remaining.map(|left| left.unwrap_or(u64::MAX)).min()
        });
        // A replay is alone with its states: asked first, a request that is denied leaves no trace.
        if request.at.is_some() {
            let asked = self.peek(request, placed, deadline).await?;
            if asked.iter().any(|outcome| !outcome.allowed) {
                return self.mend_denied(request, &groups, asked, deadline).await;
            }
        }
        self.register_across(request, placed, deadline).await?;
        let mut taken = Charged {
            inner: self,
            parts: Vec::new(),
        };
        let mut answers: Vec<Outcomes> = Vec::with_capacity(groups.len());
        for (at, group) in groups.iter().enumerate() {
            let charges = charges_of(request, group);
            let part = part_of(request, &charges);
            let make = || Step::charge(&self.keys, &part).registered_elsewhere();
            let reply = self.decide(&charges, deadline, make).await?;
            let sent_at = reply.sent_at;
            let answer = outcomes(reply)?;
            let of_group: SmallVec<[Placed<'_>; 4]> =
                group.iter().map(|at| placed[*at].again()).collect();
            if request.at.is_none() {
                self.heard(&of_group, &answer, sent_at);
            }
            let is_allowed = answer.iter().all(|outcome| outcome.allowed);
            if is_allowed {
                taken
                    .parts
                    .extend(Step::give_back(&self.keys, &part, &answer));
                answers.push(answer);
                continue;
            }
            answers.push(answer);
            return self
                .denied_across(request, placed, &groups, (at, answers, taken), deadline)
                .await;
        }
        taken.parts.clear();
        Ok(in_order(request.charges.len(), &groups, &answers))
    }

    /// The answer to a request that the group at `denied` denied: what was charged before is given back, and
    /// what was not charged yet is asked.
    async fn denied_across(
        self: &Arc<Self>,
        request: &Request<'_>,
        placed: &[Placed<'_>],
        groups: &[Group],
        (denied, mut answers, mut taken): (usize, Vec<Outcomes>, Charged<'_>),
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let parts = std::mem::take(&mut taken.parts);
        self.stats
            .add_many(&self.stats.given_back, parts.len() as u64);
        // In a task of its own, so that it is done whoever goes away meanwhile.
        let inner = Arc::clone(self);
        let giving_back = self
            .runtime
            .spawn(async move { inner.take_back(parts).await });
        let _ = self.router.until(deadline, giving_back).await;
        for at in groups[..denied].iter().flatten() {
            self.hints.forget(placed[*at].name);
        }
        if let Some(lease) = request.lease {
            let inner = Arc::clone(self);
            self.runtime
                .spawn(async move { inner.unregister(lease).await });
        }
        for group in groups[..denied].iter().chain(&groups[denied + 1..]) {
            let charges = charges_of(request, group);
            let part = part_of(request, &charges);
            let asked = self
                .router
                .step(Step::peek(&self.keys, &part), deadline)
                .await;
            let asked = match asked {
                Ok(reply) => outcomes(reply)?,
                // It is denied all the same; of the others nothing is known.
                Err(_) => charges.iter().map(unknown).collect(),
            };
            match groups.iter().position(|other| other == group) {
                Some(at) if at < denied => answers[at] = asked,
                _ => answers.push(asked),
            }
        }
        // The answers stand in the order of the groups now.
        Ok(in_order(request.charges.len(), groups, &answers))
    }

    /// What a denied charge writes: states from a clock that was set back are moved to the present.
    async fn mend_denied(
        &self,
        request: &Request<'_>,
        groups: &[Group],
        asked: Outcomes,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        for group in groups {
            if group.iter().all(|at| asked[*at].allowed) {
                continue;
            }
            // Denied again, as a whole.
            let charges = charges_of(request, group);
            let step = Step::charge(&self.keys, &part_of(request, &charges)).registered_elsewhere();
            self.router.step(step, deadline).await?;
        }
        Ok(asked)
    }

    async fn take_back(&self, parts: Vec<Step>) {
        for part in parts {
            let deadline = self.router.deadline();
            // After an error nobody knows: it is lost until it expires.
            if let Err(error) = self
                .router
                .step(part.registered_elsewhere(), deadline)
                .await
            {
                tracing::debug!(%error, "a charge could not be given back");
            }
        }
    }

    fn note_across(&self, placed: &[Placed<'_>]) {
        let is_known = {
            let across = self.across.read();
            placed
                .iter()
                .all(|placed| across.contains(&placed.charge.scope.id()))
        };
        if !is_known {
            let mut across = self.across.write();
            across.extend(placed.iter().map(|placed| placed.charge.scope.id()));
        }
    }
}

/// The answer of a limit of which nothing is known.
fn unknown(charge: &Charge<'_>) -> Outcome {
    let now = Timestamp::EPOCH;
    Outcome {
        allowed: true,
        limit: charge.limit.capacity(),
        remaining: charge.limit.capacity(),
        retry: Retry::Now,
        reset_at: now,
        delay: tidegate_core::Micros::ZERO,
        at: now,
    }
}
