//! Tells the store, once it is back, what was admitted without it.
//!
//! What is told is forgotten here first, so that it is told once at the most. Only if the store says
//! that it heard nothing is it remembered again; and so is what did not fit into a bucket, until it has
//! flowed back.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use smallvec::SmallVec;
use tidegate_core::algorithm::Form;
use tidegate_core::{Charge, Micros, Outcome, Request, Retry, Store, StoreError, Timestamp};

use super::Gate;
use super::owed::Debt;

/// How many keys are settled at the same time.
const AT_ONCE: usize = 32;

/// How soon a store that had no room is asked again.
const SHORTEST: Micros = Micros::new(5_000);

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
        // Those that fail come again at the end of the line: each is tried once.
        let mut left = self.local.owed().0;
        while left > 0 && !self.local.is_settled() && self.store.is_up() {
            left = left.saturating_sub(AT_ONCE);
            let oldest = std::iter::from_fn(|| self.local.take_oldest());
            let batch: Vec<_> = oldest.take(AT_ONCE).collect();
            let settling = batch.into_iter();
            all(settling.map(|(key, debt)| self.settle_one(key, debt))).await;
        }
    }

    /// How much waits to be settled.
    pub fn unsettled(&self) -> Unsettled {
        let (waiting, lost) = self.local.owed();
        Unsettled { waiting, lost }
    }

    /// Settles what one key owes of one limit; if the store heard nothing of it, it is owed still.
    async fn settle_one(&self, key: Arc<str>, debt: Debt) {
        let at = debt.at;
        let _ = self.settle_debt(&key, debt, at).await;
    }

    /// Settles what the states of a request owe, so that the store decides it by all that was used.
    pub(super) async fn settle_before(&self, request: &Request<'_>) -> Result<(), StoreError> {
        if self.local.is_settled() {
            return Ok(());
        }
        let mut failed = None;
        for charge in request.charges {
            if let Some(debt) = self.local.take(charge) {
                let at = request.at.or(debt.at);
                // Each on its own: what one state owes does not depend on where another is.
                if let Err(error) = self.settle_debt(charge.key, debt, at).await {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn settle_debt(
        &self,
        key: &str,
        debt: Debt,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let cost = self.local.still_owed(key, &debt, at);
        if cost == 0 {
            return Ok(());
        }
        let now = self.clock.now();
        if debt.not_before.is_some_and(|time| now < time) {
            self.local.put_back(key, debt);
            return Ok(());
        }
        let charge = Charge {
            scope: &debt.share.scope,
            limit: &debt.share.whole,
            key,
            cost,
        };
        let request = Request {
            charges: &[charge],
            at,
            lease: None,
        };
        match self.store.settle(&request).await {
            Ok(outcomes) => {
                let left = outcomes
                    .first()
                    .and_then(|outcome| left_over(&charge, outcome));
                if let Some((amount, wait)) = left.filter(|_| at.is_none()) {
                    let not_before = Some(now + wait);
                    let debt = Debt {
                        amount,
                        not_before,
                        ..debt.clone()
                    };
                    self.local.put_back(key, debt);
                }
                Ok(())
            }
            Err(error) => {
                if error.left_nothing() {
                    self.local.put_back(key, debt.clone());
                }
                Err(error)
            }
        }
    }
}

/// What of a charge did not fit into a bucket that is full, and how long the bucket takes to have room for
/// one more. Of other limits nothing: what does not fit into a window is never asked for in the next.
fn left_over(charge: &Charge<'_>, outcome: &Outcome) -> Option<(u64, Micros)> {
    let (Form::Bucket(form), Retry::After(wait), false) =
        (charge.limit.form(), outcome.retry, outcome.allowed)
    else {
        return None;
    };
    let window = u128::from(form.window().get()).max(1);
    let units = (u128::from(wait.get()) * u128::from(form.count())).div_ceil(window);
    let units = u64::try_from(units).unwrap_or(u64::MAX).min(charge.cost);
    let one = form.window().get() / form.count().max(1);
    let wait = Micros::new(one).clamp(SHORTEST, Micros::SECOND);
    (units > 0).then_some((units, wait))
}

/// Lets all of them run at the same time; what each came to, in their order.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> SmallVec<[F::Output; 1]> {
    let mut running: SmallVec<[Running<F>; 1]> = futures
        .map(|future| Running::Still(Box::pin(future)))
        .collect();
    poll_fn(|context| {
        let mut is_over = true;
        for one in &mut running {
            if let Running::Still(future) = one {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *one = Running::Ended(output),
                    Poll::Pending => is_over = false,
                }
            }
        }
        if is_over {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    let ended = running.into_iter().filter_map(|one| match one {
        Running::Ended(output) => Some(output),
        Running::Still(_) => None,
    });
    ended.collect()
}

enum Running<F: Future> {
    Still(Pin<Box<F>>),
    Ended(F::Output),
}
