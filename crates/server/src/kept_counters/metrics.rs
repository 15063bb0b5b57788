//! The metrics of snapshots of the in-memory store. Exported only if they are written.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Clock as _, Micros, SystemClock, Timestamp};

use super::KeptCounters;
use crate::telemetry::{counter, gauge};

impl KeptCounters {
    /// Registers how writing snapshots went.
    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let current_at = Timestamp::from_micros(load(&self.current_at));
        registry.register(
            "snapshots",
            "Snapshots of the counters that were written to the data directory",
            counter(load(&self.writes)),
        );
        registry.register(
            "snapshot_failures",
            "Snapshots that could not be written, so that the last one stayed",
            counter(load(&self.failures)),
        );
        registry.register_with_unit(
            "snapshot",
            "Size of the last snapshot",
            Unit::Bytes,
            gauge(load(&self.bytes)),
        );
        registry.register_with_unit(
            "snapshot_write",
            "Time that the last snapshot took to write",
            Unit::Seconds,
            seconds(Micros::new(load(&self.took))),
        );
        registry.register_with_unit(
            "snapshot_age",
            "Time since the snapshot on the disk last had every change",
            Unit::Seconds,
            seconds(SystemClock.now().since(current_at)),
        );
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a span is below 2^53 microseconds"
)]
fn seconds(span: Micros) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(span.get() as f64 / 1e6);
    gauge
}
