//! How the counters of the in-memory store are kept. Exported only if they are.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use tidegate::{Clock as _, Micros, SystemClock};

use super::metrics::{counter, gauge};
use crate::kept_counters::KeptCounters;

pub(super) fn register(registry: &mut Registry, kept: &KeptCounters) {
    let counts = kept.counts(SystemClock.now());
    registry.register(
        "snapshots",
        "Snapshots of the counters that were written to the data directory",
        counter(counts.writes),
    );
    registry.register(
        "snapshot_failures",
        "Snapshots that could not be written, so that the last one stayed",
        counter(counts.failures),
    );
    registry.register_with_unit(
        "snapshot",
        "Size of the last snapshot",
        Unit::Bytes,
        gauge(counts.bytes),
    );
    registry.register_with_unit(
        "snapshot_write",
        "Time that the last snapshot took to write",
        Unit::Seconds,
        seconds(counts.took),
    );
    registry.register_with_unit(
        "snapshot_age",
        "Time since the snapshot on the disk last had every change",
        Unit::Seconds,
        seconds(counts.age),
    );
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
