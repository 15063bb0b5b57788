//! The second half of the gate's road, for a caller that brings a limit of its own.

use std::sync::Arc;

use tidegate_core::{Charge, Outcome, Request, Store};

use super::Gate;
use super::failure::unknown;
use super::local::{LocalCharge, LocalRequest};
use crate::rules::{OnStoreFailure, Share};

/// What a limit that its caller brought has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charged {
    /// The answer.
    pub outcome: Outcome,
    /// What was done instead of asking, if the store could not answer.
    pub without_store: Option<OnStoreFailure>,
}

impl Charged {
    /// Whether the store could not answer.
    pub fn is_degraded(&self) -> bool {
        self.without_store.is_some()
    }

    /// Whether it is denied only because nobody could decide.
    pub fn is_failed(&self) -> bool {
        self.without_store == Some(OnStoreFailure::Deny)
    }
}

impl<S: Store> Gate<S> {
    /// Charges one limit that no rule is about. Does not fail: when the store does, what is said here
    /// is done, and the answer says so.
    pub async fn charge(&self, charge: &Charge<'_>, on_store_failure: OnStoreFailure) -> Charged {
        let charges = [*charge];
        let request = Request::new(&charges);
        let answered = match self.settle_before(&request).await {
            Ok(()) => self.store.charge(&request).await,
            Err(error) => Err(error),
        };
        match answered.as_deref() {
            Ok([outcome, ..]) => Charged {
                outcome: *outcome,
                without_store: None,
            },
            Ok([]) | Err(_) => Charged {
                outcome: self.charge_without(charge, on_store_failure),
                without_store: Some(on_store_failure),
            },
        }
    }

    /// Charges one limit that no rule is about within the call, if the store never waits for anything.
    #[inline]
    pub fn charge_at_once(&self, charge: &Charge<'_>) -> Option<Charged> {
        let outcome = self.store.charge_at_once(charge)?;
        Some(Charged {
            outcome,
            without_store: None,
        })
    }

    #[cold]
    fn charge_without(&self, charge: &Charge<'_>, choice: OnStoreFailure) -> Outcome {
        let unknown = |allowed| unknown(allowed, charge.limit.capacity(), self.clock.now());
        match choice {
            OnStoreFailure::Allow => unknown(true),
            OnStoreFailure::Deny => unknown(false),
            OnStoreFailure::Local => {
                let share = Arc::new(Share {
                    scope: charge.scope.clone(),
                    whole: charge.limit.clone(),
                    part: charge.limit.share(self.instances()),
                });
                let local = LocalCharge {
                    share: &share,
                    key: charge.key,
                    cost: charge.cost,
                };
                let request = LocalRequest {
                    charges: &[local],
                    at: None,
                    lease: None,
                    is_denied: false,
                };
                let outcomes = self.local.charge(&request, &self.store);
                outcomes.first().copied().unwrap_or_else(|| unknown(false))
            }
        }
    }
}
