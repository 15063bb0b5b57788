//! The store of a server: in memory, or in Redis.

mod metrics;
mod redis_metrics;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::registry::{Registry, Unit};
use tidegate::{MemoryStore, Store};
use tidegate_listen::Timing;
use tidegate_redis::{Damage, Health, RedisSettings, RedisStore};

use crate::telemetry::{BOUNDS, note_store_call, register_counter};

/// The store that the configuration selects. Cheap to clone.
#[derive(Clone)]
pub(crate) enum ServerStore {
    Memory(Arc<MemoryStore>),
    Redis(RedisStore, Arc<StoreCalls>),
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
        note_store_call(took, is_error);
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

impl ServerStore {
    /// Begins to connect to Redis, and measures the calls to it.
    pub(crate) fn open_redis(settings: &RedisSettings) -> (Self, RedisStore) {
        let calls = Arc::new(StoreCalls::new());
        let measured = Arc::clone(&calls);
        let mut settings = settings.clone();
        settings.observe_calls = Some(Arc::new(move |took, is_error| {
            measured.note(took, is_error);
        }));
        let store = RedisStore::open(settings);
        (Self::Redis(store.clone(), calls), store)
    }

    /// The store as a gate asks it.
    pub(crate) fn to_gate(&self) -> Store {
        match self {
            Self::Memory(store) => Arc::clone(store).into(),
            Self::Redis(store, _) => store.clone().into(),
        }
    }

    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Self::Memory(store) => Some(store),
            Self::Redis(..) => None,
        }
    }

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
