//! The leases of concurrency limits: named so that their name leads to where they are held.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::algorithm::Form;
use tidegate_core::{Charge, LeaseId, Micros, Request, StoreError};
use tokio::time::Instant;

use super::{Inner, Placed};
use crate::keys::{Keys, slot_of_lease};
use crate::wire::{Answer, Step};

/// Releases a lease when it is dropped, unless its fate has become known.
pub(super) struct Unknown {
    inner: Option<(Arc<Inner>, LeaseId)>,
}

impl Unknown {
    pub(super) fn resolved(mut self) {
        self.inner = None;
    }
}

impl Drop for Unknown {
    fn drop(&mut self) {
        if let Some((inner, lease)) = self.inner.take() {
            let runtime = inner.runtime.clone();
            runtime.spawn(async move {
                // It ends by itself if this fails.
                let _ = inner.release(lease).await;
            });
        }
    }
}

impl Inner {
    /// Watches over the lease of a request that holds places until its fate is known.
    pub(super) fn watch_lease(self: &Arc<Self>, request: &Request<'_>) -> Unknown {
        let holds = |charge: &Charge<'_>| matches!(charge.limit.form(), Form::Concurrency(_));
        let lease = request
            .lease
            .filter(|_| request.at.is_none() && request.charges.iter().any(holds));
        Unknown {
            inner: lease.map(|lease| (Arc::clone(self), lease)),
        }
    }

    /// A new name, whose register is beside the first state that it will hold a place of.
    pub(super) fn lease_for(&self, charges: &[Charge<'_>]) -> LeaseId {
        let holds = |charge: &&Charge<'_>| matches!(charge.limit.form(), Form::Concurrency(_));
        match charges.iter().find(holds) {
            Some(charge) => {
                let state = self.keys.state(charge.scope, charge.limit, charge.key);
                Keys::lease_for(&state)
            }
            None => LeaseId::random(),
        }
    }

    /// Releases a lease wherever it is held.
    pub(super) async fn release(&self, lease: LeaseId) -> Result<bool, StoreError> {
        let (mut was_live, there) = self.held(Step::release(&self.keys, lease)).await?;
        if there.is_empty() {
            return Ok(was_live);
        }
        for state in there {
            let (was_live_there, _) = self.held(Step::release_there(state, lease)).await?;
            was_live |= was_live_there;
        }
        self.unregister(lease).await;
        Ok(was_live)
    }

    /// Renews a lease wherever it is held.
    pub(super) async fn renew(&self, lease: LeaseId) -> Result<bool, StoreError> {
        let (mut was_live, there) = self.held(Step::renew(&self.keys, lease)).await?;
        for state in there {
            let (was_live_there, _) = self.held(Step::renew_there(state, lease)).await?;
            was_live &= was_live_there;
        }
        Ok(was_live)
    }

    /// Forgets where a lease is held, once it is held nowhere.
    pub(super) async fn unregister(&self, lease: LeaseId) {
        let deadline = self.router.deadline();
        let step = Step::unregister(&self.keys, lease);
        // What is not forgotten now expires.
        let _ = self.router.step(step, deadline).await;
    }

    async fn held(&self, step: Step) -> Result<(bool, Vec<String>), StoreError> {
        let deadline = self.router.deadline();
        match self.router.step(step, deadline).await?.answer {
            Answer::Held { was_live, there } => Ok((was_live, there)),
            _ => Err(StoreError::BadReply("a lease was expected".into())),
        }
    }

    /// Writes the register of a request's lease where that is in another slot; whether it is.
    pub(super) async fn register_far(
        &self,
        request: &Request<'_>,
        slot: u16,
        deadline: Instant,
    ) -> Result<bool, StoreError> {
        let Some(lease) = request.lease.filter(|lease| self.is_far(slot, *lease)) else {
            return Ok(false);
        };
        let step = Step::charge(&self.keys, request);
        let there: Vec<(String, Micros)> = step
            .holds()
            .map(|(state, ttl)| (state.to_owned(), ttl))
            .collect();
        if !there.is_empty() {
            let register = Step::register(&self.keys, lease, request.at, there);
            self.router.step(register, deadline).await?;
        }
        Ok(true)
    }

    /// Writes the register of a lease that will hold places in several slots.
    pub(super) async fn register_across(
        &self,
        request: &Request<'_>,
        placed: &[Placed<'_>],
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let Some(lease) = request.lease else {
            return Ok(());
        };
        let held: SmallVec<[(String, Micros); 4]> = placed
            .iter()
            .filter(|placed| placed.cost > 0)
            .filter_map(|placed| match placed.charge.limit.form() {
                Form::Concurrency(form) => {
                    let charge = &placed.charge;
                    let state = self.keys.state(charge.scope, charge.limit, charge.key);
                    Some((state, form.lease_ttl()))
                }
                _ => None,
            })
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        let register = Step::register(&self.keys, lease, request.at, held.into_vec());
        self.router.step(register, deadline).await.map(drop)
    }

    /// The step without its lease's register, where that is in another slot.
    pub(super) fn without_far_register(
        &self,
        step: Step,
        request: &Request<'_>,
        slot: u16,
    ) -> Step {
        match request.lease {
            Some(lease) if self.is_far(slot, lease) => step.registered_elsewhere(),
            _ => step,
        }
    }

    fn is_far(&self, slot: u16, lease: LeaseId) -> bool {
        self.router.is_cluster() && slot_of_lease(lease) != slot
    }
}
