//! The metrics of the store.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::registry::Registry;
use tidegate::MemoryStats;
use tidegate_ratelimit::stats::RedisPoolStats;

use super::{ServerStore, StoreCalls, redis_metrics};
use crate::telemetry::{counter, gauge};

impl ServerStore {
    /// The connections to Redis, if there is one, as envoyproxy/ratelimit counts them.
    pub(crate) fn redis_pool(&self) -> Option<RedisPoolStats> {
        let stats = self.redis()?.stats();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (total, closed) = (count(&stats.connects), count(&stats.falls));
        Some(RedisPoolStats {
            active: total.saturating_sub(closed),
            total,
            closed,
        })
    }

    /// Registers the metrics of the store.
    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        match self {
            Self::Memory(store) => {
                // Calls in memory are not measured, and stay at zero.
                StoreCalls::new().register(registry);
                register_memory(registry, &store.stats());
            }
            Self::Redis(store, calls) => {
                calls.register(registry);
                redis_metrics::register(registry, store);
            }
        }
    }
}

fn register_memory(registry: &mut Registry, stats: &MemoryStats) {
    registry.register(
        "keys",
        "Keys that the store holds",
        gauge(stats.keys as u64),
    );
    registry.register(
        "keys_max",
        "Keys that the store can hold",
        gauge(stats.max_keys as u64),
    );
    registry.register(
        "memory_bytes",
        "Memory that counters and permits take",
        gauge(stats.memory as u64),
    );
    registry.register(
        "memory_max_bytes",
        "Memory that they may take",
        gauge(stats.max_memory as u64),
    );
    registry.register(
        "leases",
        "Concurrency leases that are held",
        gauge(stats.permits as u64),
    );
    registry.register(
        "keys_expired",
        "Keys removed because they were idle",
        counter(stats.expired),
    );
    registry.register(
        "keys_evicted",
        "Keys evicted for others; each of them got its whole limit back",
        counter(stats.evicted),
    );
}
