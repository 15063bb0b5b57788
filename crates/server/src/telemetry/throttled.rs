//! Metrics of `CL.THROTTLE`. No rule counts its answers, because the limits come with the calls.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tidegate::gate::Charged;
use tidegate_activity::OutcomeCounts;

/// Answers of one connection since it last reported.
#[derive(Debug, Default)]
pub(crate) struct Throttled {
    counts: [u64; 3],
    degraded: u64,
    cost: u64,
}

impl Throttled {
    pub(crate) fn count(&mut self, charged: &Charged, cost: u64) {
        let verdict = match (charged.is_failed(), charged.outcome.allowed) {
            (true, _) => 2,
            (false, allowed) => usize::from(!allowed),
        };
        self.counts[verdict] += 1;
        self.degraded += u64::from(charged.is_degraded());
        if charged.outcome.allowed {
            self.cost = self.cost.saturating_add(cost);
        }
    }

    /// The same for live activity. A request that could not be decided is denied.
    pub(super) fn outcomes(&self) -> OutcomeCounts {
        let [allowed, denied, failed] = self.counts;
        OutcomeCounts {
            allowed,
            denied: denied + failed,
            degraded: self.degraded,
            cost: self.cost,
            ..OutcomeCounts::default()
        }
    }
}

/// Answers of all connections.
#[derive(Debug, Default)]
pub(super) struct ThrottledCounts {
    counts: [AtomicU64; 3],
    degraded: AtomicU64,
}

impl ThrottledCounts {
    pub(super) fn add(&self, throttled: &Throttled) {
        for (all, count) in self.counts.iter().zip(throttled.counts) {
            if count > 0 {
                all.fetch_add(count, Ordering::Relaxed);
            }
        }
        if throttled.degraded > 0 {
            self.degraded
                .fetch_add(throttled.degraded, Ordering::Relaxed);
        }
    }

    /// With `is_on`, all series exist from zero.
    pub(super) fn register(&self, registry: &mut Registry, is_on: bool) {
        let throttles = Family::<tidegate_listen::Labels<1>, Counter>::default();
        for (verdict, count) in ["allowed", "denied", "failed"]
            .into_iter()
            .zip(&self.counts)
        {
            let count = count.load(Ordering::Relaxed);
            if count > 0 || is_on {
                let labels = [("verdict", verdict.to_owned())];
                throttles.get_or_create(&labels).inc_by(count);
            }
        }
        registry.register(
            "throttles",
            "What CL.THROTTLE answered, by verdict",
            throttles,
        );
        super::metrics::register_counter(
            registry,
            "throttles_degraded",
            "Answers of CL.THROTTLE without the store",
            &self.degraded,
        );
    }
}
