//! Tells the store, once it is back, what was admitted without it.
//!
//! What is told is forgotten here first, so that it is told once at the most. Only if the store says
//! that it heard nothing is it remembered again.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use smallvec::SmallVec;
use tidegate_core::{Charge, Request, Store, StoreError};

use super::Gate;
use super::owed::Debt;

/// How many keys are settled at the same time.
const AT_ONCE: usize = 32;

/// What of the counters of this instance alone the store should hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsettled {
    /// How many keys and limits wait to be settled.
    pub waiting: usize,
    /// How many had to be forgotten, because too many waited.
    pub lost: u64,
}

impl<S: Store> Gate<S> {
    /// Settles in the store what was admitted without it, if the store is back. To be called again and
    /// again, some times a second: it costs next to nothing when nothing waits. What a request is about
    /// is settled before the request is, whether this is called or not.
    pub async fn settle_back(&self) {
        while !self.local.is_settled() && self.store.is_up() {
            let oldest = std::iter::from_fn(|| self.local.take_oldest());
            let batch: Vec<_> = oldest.take(AT_ONCE).collect();
            let settling = batch
                .into_iter()
                .map(|(key, debt)| Box::pin(self.settle_one(key, debt)) as Settling<'_>);
            if !all_ended_well(settling.collect()).await {
                return;
            }
        }
    }

    /// How much waits to be settled.
    pub fn unsettled(&self) -> Unsettled {
        let (waiting, lost) = self.local.owed();
        Unsettled { waiting, lost }
    }

    /// Settles what one key owes of one limit. False if the store could not answer.
    async fn settle_one(&self, key: Arc<str>, debt: Debt) -> bool {
        let cost = self.local.still_owed(&key, &debt, debt.at);
        if cost == 0 {
            return true;
        }
        let charge = Charge {
            scope: &debt.share.scope,
            limit: &debt.share.whole,
            key: &key,
            cost,
        };
        let request = Request {
            charges: &[charge],
            at: debt.at,
            lease: None,
        };
        let answer = self.store.settle(&request).await;
        if let Err(StoreError::Unreachable(_)) = answer {
            self.local.put_back(&key, debt.clone());
        }
        answer.is_ok()
    }

    /// Settles what the states of a request owe, so that the store decides it by all that was used.
    pub(super) async fn settle_before(&self, request: &Request<'_>) -> Result<(), StoreError> {
        if self.local.is_settled() {
            return Ok(());
        }
        let mut debts: SmallVec<[(Charge<'_>, Debt); 4]> = SmallVec::new();
        for charge in request.charges {
            if let Some(debt) = self.local.take(charge) {
                let cost = self.local.still_owed(charge.key, &debt, request.at);
                debts.push((Charge { cost, ..*charge }, debt));
            }
        }
        debts.retain(|(charge, _)| charge.cost > 0);
        if debts.is_empty() {
            return Ok(());
        }
        let charges: SmallVec<[Charge<'_>; 4]> = debts.iter().map(|(charge, _)| *charge).collect();
        let settling = Request {
            charges: &charges,
            at: request.at,
            lease: None,
        };
        let answer = self.store.settle(&settling).await;
        if let Err(StoreError::Unreachable(_)) = answer {
            for (charge, debt) in debts {
                self.local.put_back(charge.key, debt);
            }
        }
        answer.map(drop)
    }
}

type Settling<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Waits for all of them; whether all said yes.
async fn all_ended_well(mut futures: Vec<Settling<'_>>) -> bool {
    let mut is_well = true;
    poll_fn(|context| {
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(ended_well) => {
                is_well &= ended_well;
                false
            }
            Poll::Pending => true,
        });
        if futures.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    is_well
}
