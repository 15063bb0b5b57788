//! The metrics of snapshots of the in-memory store. Exported only if they are written.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::Micros;

use super::KeptCounters;
use crate::seconds::decimal_seconds;
use crate::telemetry::{counter, gauge};

impl KeptCounters {
    /// Registers how writing snapshots went.
    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
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
            seconds(self.state().age),
        );
    }
}

fn seconds(span: Micros) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(decimal_seconds(span.get()));
    gauge
}
