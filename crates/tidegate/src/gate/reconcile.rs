//! Charges the store, once it is reachable again, for what was admitted without it.
//!
//! A debt is removed here before the store is called, so that it is charged at most once. It is kept
//! again only if the store certainly charged nothing; and so is what did not fit into a bucket, until it
//! has drained.

use std::sync::Arc;

use futures_util::future::join_all;
use tidegate_core::algorithm::Form;
use tidegate_core::{Charge, Micros, Outcome, Request, Retry, StoreError, Timestamp};

use super::Gate;
use super::owed::Debt;

/// How many keys are reconciled at the same time.
const AT_ONCE: usize = 32;

/// How soon a store that had no room is asked again.
const SHORTEST: Micros = Micros::new(5_000);

/// What was admitted while the store was unavailable, and has not been charged there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreconciled {
    /// How many keys and limits wait to be charged.
    pub waiting: usize,
    /// How many were dropped because too many waited.
    pub lost: u64,
}

impl Gate {
    /// Charges the store, if it is reachable again, for what was admitted while it was unavailable. Keys that
    /// a request is about are reconciled before the request is decided, whether this is called or not.
    pub async fn reconcile(&self) {
        self.end_due_alone(None);
        // Those that fail come again at the end of the line: each is tried once.
        let mut left = self.local.owed().0;
        while left > 0 && !self.local.is_reconciled() && self.is_store_up() {
            left = left.saturating_sub(AT_ONCE);
            let oldest = std::iter::from_fn(|| self.local.take_oldest());
            let batch: Vec<_> = oldest.take(AT_ONCE).collect();
            let owed = batch.into_iter();
            join_all(owed.map(|(key, debt)| self.reconcile_one(key, debt))).await;
        }
    }

    /// How much waits to be reconciled.
    pub fn unreconciled(&self) -> Unreconciled {
        let (waiting, lost) = self.local.owed();
        Unreconciled { waiting, lost }
    }

    /// Charges what one key owes of one limit. If the store certainly charged nothing, it stays owed.
    async fn reconcile_one(&self, key: Arc<str>, debt: Debt) {
        let at = debt.at;
        let _ = self.reconcile_debt(&key, debt, at).await;
    }

    /// Charges what the keys of a request owe, so that the store decides it by all that was used. Returns whether
    /// they owed anything.
    pub(super) async fn reconcile_keys(&self, request: &Request<'_>) -> Result<bool, StoreError> {
        if self.local.is_reconciled() {
            return Ok(false);
        }
        self.end_due_alone(request.at);
        let (mut failed, mut has_owed) = (None, false);
        for charge in request.charges {
            if let Some(debt) = self.local.take(charge) {
                has_owed = true;
                let at = request.at.or(debt.at);
                // Each on its own: what one state owes does not depend on where another is.
                if let Err(error) = self.reconcile_debt(charge.key, debt, at).await {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(has_owed), Err)
    }

    async fn reconcile_debt(
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
            permit: None,
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
