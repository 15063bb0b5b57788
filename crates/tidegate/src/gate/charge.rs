//! Charges a limit that the caller brings, without rules: the second half of a decision.

use tidegate_core::{Charge, MemoryStore, Outcome, RemoteStore, Request, Store, StoreError};

use super::fallback::unknown;
use super::local::{LocalCharge, LocalRequest};
use super::pipeline::Verb;
use super::{Gate, StoreIsRemote};
use crate::rules::{OnStoreFailure, Share};

/// The outcome of a limit that the caller brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
        matches!(
            self.without_store,
            Some(OnStoreFailure::Deny | OnStoreFailure::Error)
        )
    }
}

impl Gate {
    /// Charges one limit that the caller brings. When the store is unavailable, `on_store_failure` says what happens.
    pub async fn charge(&self, charge: &Charge<'_>, on_store_failure: OnStoreFailure) -> Charged {
        let store = match &self.store {
            Store::Memory(store) => return self.charge_in_memory(store, charge),
            Store::Remote(store) => &**store,
        };
        let began = self.begin();
        let charged = match self.charge_remotely(store, charge).await {
            Ok(outcome) => Charged {
                outcome,
                without_store: None,
            },
            Err(_) => Charged {
                outcome: self.charge_without_store(store, charge, on_store_failure),
                without_store: Some(on_store_failure),
            },
        };
        if let Some(observer) = &self.observer {
            observer.charged(began, charge, &charged);
        }
        charged
    }

    /// [`charge`](Self::charge) without waiting. An error, before anything is sent, if the store is remote.
    #[inline]
    pub fn try_charge(&self, charge: &Charge<'_>) -> Result<Charged, StoreIsRemote> {
        match &self.store {
            Store::Memory(store) => Ok(self.charge_in_memory(store, charge)),
            Store::Remote(_) => Err(StoreIsRemote),
        }
    }

    #[inline]
    fn charge_in_memory(&self, store: &MemoryStore, charge: &Charge<'_>) -> Charged {
        let began = self.begin();
        let charged = Charged {
            outcome: store.charge_one(charge),
            without_store: None,
        };
        if let Some(observer) = &self.observer {
            observer.charged(began, charge, &charged);
        }
        charged
    }

    async fn charge_remotely(
        &self,
        store: &dyn RemoteStore,
        charge: &Charge<'_>,
    ) -> Result<Outcome, StoreError> {
        let charges = [*charge];
        let request = Request::new(&charges);
        self.reconcile_keys(&request).await?;
        let outcomes = store.charge(&request).await?;
        let missing = || StoreError::BadReply("no outcome for the charge".into());
        outcomes.first().copied().ok_or_else(missing)
    }

    #[cold]
    fn charge_without_store(
        &self,
        store: &dyn RemoteStore,
        charge: &Charge<'_>,
        on_store_failure: OnStoreFailure,
    ) -> Outcome {
        let unknown = |allowed| unknown(allowed, charge.limit.capacity(), self.clock.now());
        match on_store_failure {
            OnStoreFailure::Allow => unknown(true),
            OnStoreFailure::Deny | OnStoreFailure::Error => unknown(false),
            OnStoreFailure::Local => {
                self.end_due_alone(None);
                let share = Share::of(charge.scope, charge.limit, self.instances());
                let (key, cost) = (charge.key, charge.cost);
                let share = &share;
                let request = LocalRequest {
                    charges: &[LocalCharge { share, key, cost }],
                    at: None,
                    permit: None,
                    verb: Verb::Charge,
                };
                let outcomes = self.local.charge(&request, Some(store));
                outcomes.first().copied().unwrap_or_else(|| unknown(false))
            }
        }
    }
}
