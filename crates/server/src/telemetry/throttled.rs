//! Metrics of `CL.THROTTLE`. No rule counts its answers, because the limits come with the calls.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tidegate::gate::Charged;

/// What `CL.THROTTLE` answered.
#[derive(Debug, Default)]
pub(super) struct ThrottledCounts {
    /// By verdict: allowed, denied, failed.
    counts: [AtomicU64; 3],
    degraded: AtomicU64,
}

impl ThrottledCounts {
    #[inline]
    pub(super) fn count(&self, charged: &Charged) {
        let verdict = match (charged.is_failed(), charged.outcome.allowed) {
            (true, _) => 2,
            (false, allowed) => usize::from(!allowed),
        };
        self.counts[verdict].fetch_add(1, Ordering::Relaxed);
        if charged.is_degraded() {
            self.degraded.fetch_add(1, Ordering::Relaxed);
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
