//! Charges a limit that the caller brings, without rules: the second half of a decision.

use tidegate_core::{Charge, Outcome, Outcomes, Request, Store, StoreError};

use super::Gate;
use super::fallback::unknown;
use super::local::{LocalCharge, LocalRequest};
use super::pipeline::Verb;
use crate::rules::{OnStoreFailure, Share};

/// The outcome of a limit that the caller brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charged {
    /// The outcome.
    pub outcome: Outcome,
    /// What was done instead, if the store was unavailable.
    pub without_store: Option<OnStoreFailure>,
}

impl Charged {
    /// Whether the store was unavailable.
    pub fn is_degraded(&self) -> bool {
        self.without_store.is_some()
    }

    /// Whether it is denied solely because the store was unavailable.
    pub fn is_failed(&self) -> bool {
        self.without_store == Some(OnStoreFailure::Deny)
    }
}

/// A limit that is about to be charged.
#[must_use = "nothing is charged before `now` or `wait` is called"]
pub struct Charging<'g, 'c, S> {
    pub(super) gate: &'g Gate<S>,
    pub(super) charge: Charge<'c>,
    pub(super) on_store_failure: OnStoreFailure,
}

impl<S: Store> Charging<'_, '_, S> {
    /// Charges without waiting, if the store keeps all state in memory. None, and nothing is charged, with
    /// a store that may have to wait.
    #[inline]
    pub fn now(&self) -> Option<Charged> {
        let store = self.gate.store.memory()?;
        let began = self.gate.begin();
        Some(self.end(began, Ok(store.charge_one(&self.charge))))
    }

    /// Charges, and waits for the store where that is necessary.
    pub async fn wait(&self) -> Charged {
        if let Some(charged) = self.now() {
            return charged;
        }
        let began = self.gate.begin();
        let outcome = self.ask().await.map_err(drop);
        self.end(began, outcome)
    }

    async fn ask(&self) -> Result<Outcome, StoreError> {
        let charges = [self.charge];
        let request = Request::new(&charges);
        self.gate.reconcile_keys(&request).await?;
        let outcomes: Outcomes = self.gate.store.charge(&request).await?;
        let missing = || StoreError::BadReply("no outcome for the charge".into());
        outcomes.first().copied().ok_or_else(missing)
    }

    #[inline]
    fn end(&self, began: u64, outcome: Result<Outcome, ()>) -> Charged {
        let charged = match outcome {
            Ok(outcome) => Charged {
                outcome,
                without_store: None,
            },
            Err(()) => Charged {
                outcome: self.charge_without_store(),
                without_store: Some(self.on_store_failure),
            },
        };
        if let Some(observer) = &self.gate.observer {
            observer.charged(began, &charged);
        }
        charged
    }

    #[cold]
    fn charge_without_store(&self) -> Outcome {
        let (gate, charge) = (self.gate, &self.charge);
        let unknown = |allowed| unknown(allowed, charge.limit.capacity(), gate.clock.now());
        match self.on_store_failure {
            OnStoreFailure::Allow => unknown(true),
            OnStoreFailure::Deny => unknown(false),
            OnStoreFailure::Local => {
                let share = Share::of(charge.scope, charge.limit, gate.instances());
                let (key, cost) = (charge.key, charge.cost);
                let share = &share;
                let request = LocalRequest {
                    charges: &[LocalCharge { share, key, cost }],
                    at: None,
                    permit: None,
                    verb: Verb::Charge,
                };
                let outcomes = gate.local.charge(&request, gate.store.shared());
                outcomes.first().copied().unwrap_or_else(|| unknown(false))
            }
        }
    }
}
