//! The store of a server: in memory, or in Redis.

mod metrics;
mod redis_metrics;

use tidegate::store::{Charge, Outcomes, Request, Scope};
use tidegate::{LeaseId, Limit, MemoryStore, Outcome, Store, StoreError};
use tidegate_redis::{Damage, Health, RedisStore};

/// Whichever store the configuration names.
#[expect(
    clippy::large_enum_variant,
    reason = "a server has one, and asks it for every decision"
)]
pub(crate) enum AnyStore {
    Memory(MemoryStore),
    Redis(RedisStore),
}

impl AnyStore {
    pub(crate) fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store),
        }
    }

    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Self::Memory(store) => Some(store),
            Self::Redis(_) => None,
        }
    }

    /// Looks for keys that are as good as new, where that is not done by itself.
    pub(crate) fn sweep(&self) {
        match self {
            Self::Memory(store) => store.sweep(),
            Self::Redis(_) => {}
        }
    }

    /// What is wrong with the store although it answers.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let damage = self.redis().map(RedisStore::damage).unwrap_or_default();
        let told = |damage: Damage| format!("rule `{}`: {}", damage.rule, damage.problem);
        damage.into_iter().map(told).collect()
    }

    /// How much of the store answers. Really asks it.
    pub(crate) async fn health(&self) -> Health {
        match self {
            Self::Memory(_) => Health::Whole,
            Self::Redis(store) => store.health().await,
        }
    }
}

/// Asks the store that is there. What it takes to ask Redis is large, and is not to be moved about with
/// every request that is decided in memory.
macro_rules! ask {
    ($store:expr, $question:ident($($argument:expr),*)) => {
        match $store {
            AnyStore::Memory(store) => Store::$question(store, $($argument),*).await,
            AnyStore::Redis(store) => Box::pin(Store::$question(store, $($argument),*)).await,
        }
    };
}

impl Store for AnyStore {
    async fn charge(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        ask!(self, charge(request))
    }

    async fn peek(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        ask!(self, peek(request))
    }

    async fn give_back(
        &self,
        request: &Request<'_>,
        outcomes: &[Outcome],
    ) -> Result<(), StoreError> {
        ask!(self, give_back(request, outcomes))
    }

    async fn settle(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        ask!(self, settle(request))
    }

    async fn forget(&self, scope: &Scope, limit: &Limit, key: &str) -> Result<(), StoreError> {
        ask!(self, forget(scope, limit, key))
    }

    async fn release(&self, lease: LeaseId) -> Result<bool, StoreError> {
        ask!(self, release(lease))
    }

    async fn renew(&self, lease: LeaseId) -> Result<bool, StoreError> {
        ask!(self, renew(lease))
    }

    #[inline]
    fn charge_at_once(&self, charge: &Charge<'_>) -> Option<Outcome> {
        match self {
            Self::Memory(store) => store.charge_at_once(charge),
            Self::Redis(store) => store.charge_at_once(charge),
        }
    }

    fn answers_at_once(&self) -> bool {
        match self {
            Self::Memory(store) => store.answers_at_once(),
            Self::Redis(store) => store.answers_at_once(),
        }
    }

    fn lease_for(&self, charges: &[Charge<'_>]) -> LeaseId {
        match self {
            Self::Memory(store) => store.lease_for(charges),
            Self::Redis(store) => store.lease_for(charges),
        }
    }

    fn is_up(&self) -> bool {
        match self {
            Self::Memory(store) => store.is_up(),
            Self::Redis(store) => store.is_up(),
        }
    }

    fn instances(&self) -> Option<u64> {
        match self {
            Self::Memory(store) => store.instances(),
            Self::Redis(store) => store.instances(),
        }
    }

    fn last_used(&self, charge: &Charge<'_>) -> Option<u64> {
        match self {
            Self::Memory(store) => store.last_used(charge),
            Self::Redis(store) => store.last_used(charge),
        }
    }

    fn rules_changed(&self) {
        match self {
            Self::Memory(store) => store.rules_changed(),
            Self::Redis(store) => store.rules_changed(),
        }
    }
}
