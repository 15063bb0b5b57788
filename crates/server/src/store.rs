//! The store of a server: in memory, or in Redis.

mod metrics;
mod redis_metrics;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::registry::{Registry, Unit};
use tidegate::store::{Outcomes, Request, Scope, SharedStore};
use tidegate::{Limit, MemoryStore, Outcome, PermitId, Store, StoreError};
use tidegate_listen::Timing;
use tidegate_listen::clock::Stopwatch;
use tidegate_redis::{Damage, Health, RedisStore};

use crate::telemetry::{BOUNDS, note_store_call, register_counter};

/// The store that the configuration selects.
#[expect(
    clippy::large_enum_variant,
    reason = "a server has one, and asks it for every decision"
)]
pub(crate) enum AnyStore {
    Memory(MemoryStore),
    Redis(RedisStore, StoreCalls),
}

/// The duration and failures of calls to Redis. Calls in memory are not measured: that would take longer than
/// the calls.
pub(crate) struct StoreCalls {
    seconds: Timing,
    errors: AtomicU64,
}

impl StoreCalls {
    pub(crate) fn new() -> Self {
        Self {
            seconds: Timing::new(&BOUNDS),
            errors: AtomicU64::new(0),
        }
    }

    fn note(&self, took: Duration, is_error: bool) {
        self.seconds.note(took);
        if is_error {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "store",
            "Time for one call to Redis",
            Unit::Seconds,
            self.seconds.clone(),
        );
        register_counter(
            registry,
            "store_errors",
            "Calls that the store could not answer",
            &self.errors,
        );
    }
}

impl AnyStore {
    pub(crate) fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store, _) => Some(store),
        }
    }

    /// Problems of a store that answers.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let damage = self.redis().map(RedisStore::damage).unwrap_or_default();
        let describe = |damage: Damage| format!("rule `{}`: {}", damage.rule, damage.problem);
        damage.into_iter().map(describe).collect()
    }

    /// Which store it is: `memory` or `redis`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redis(..) => "redis",
        }
    }

    /// How much of the store answers. Makes a call to find out.
    pub(crate) async fn health(&self) -> Health {
        match self {
            Self::Memory(_) => Health::Whole,
            Self::Redis(store, _) => store.health().await,
        }
    }
}

/// Calls the selected store, and measures calls to Redis. A macro, because a function would hold the future
/// twice.
macro_rules! ask {
    ($store:expr, $question:ident($($argument:expr),*)) => {
        match $store {
            AnyStore::Memory(store) => Store::$question(store, $($argument),*).await,
            AnyStore::Redis(store, calls) => {
                let start = Stopwatch::start();
                let answer = Store::$question(store, $($argument),*).await;
                let took = start.elapsed();
                calls.note(took, answer.is_err());
                note_store_call(took, answer.is_err());
                answer
            }
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

    async fn preview(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        ask!(self, preview(request))
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

    async fn release(&self, permit: PermitId) -> Result<bool, StoreError> {
        ask!(self, release(permit))
    }

    async fn renew(&self, permit: PermitId) -> Result<bool, StoreError> {
        ask!(self, renew(permit))
    }

    fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Self::Memory(store) => Some(store),
            Self::Redis(..) => None,
        }
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        self.redis().and_then(Store::shared)
    }
}
