//! A histogram of durations that threads update without a lock.
//!
//! The histogram of `prometheus_client` has a lock that all decisions would contend for:
//! `docs/decisions/009-histogram.md`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

/// The labels of one series of a metric.
pub type Labels<const N: usize> = [(&'static str, String); N];

/// A histogram of durations. Clones count together.
#[derive(Debug, Clone)]
pub struct Timing(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// Upper bounds in nanoseconds, and the count of each bucket.
    buckets: Box<[(u64, AtomicU64)]>,
    above: AtomicU64,
    nanos: AtomicU64,
}

impl Timing {
    /// A histogram with these bucket bounds, in seconds and ascending.
    pub fn new(bounds: &[f64]) -> Self {
        let nanos = |seconds: &f64| Duration::from_secs_f64(*seconds).as_nanos();
        let bucket = |seconds| {
            let bound = u64::try_from(nanos(seconds)).unwrap_or(u64::MAX);
            (bound, AtomicU64::new(0))
        };
        Self(Arc::new(Counts {
            buckets: bounds.iter().map(bucket).collect(),
            above: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }))
    }

    /// Records a duration.
    pub fn note(&self, took: Duration) {
        let Counts {
            buckets,
            above,
            nanos,
        } = &*self.0;
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = buckets.iter().find(|(bound, _)| took <= *bound);
        let count = bucket.map_or(above, |(_, count)| count);
        count.fetch_add(1, Ordering::Relaxed);
        nanos.fetch_add(took, Ordering::Relaxed);
    }
}

impl EncodeMetric for Timing {
    #[expect(
        clippy::cast_precision_loss,
        reason = "nanoseconds up to a hundred days are exact, and longer times need not be"
    )]
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let bounded = self.0.buckets.iter();
        let mut buckets: Vec<(f64, u64)> = bounded
            .map(|(bound, count)| (seconds(*bound), load(count)))
            .collect();
        buckets.push((f64::INFINITY, load(&self.0.above)));
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = seconds(load(&self.0.nanos));
        encoder.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn what_takes_as_long_as_a_bound_is_in_its_bucket() {
        let timing = Timing::new(&[0.001, 0.25]);
        for micros in [0, 1_000, 1_001, 250_000, 250_001, 90_000_000] {
            timing.clone().note(Duration::from_micros(micros));
        }
        let mut registry = Registry::default();
        registry.register("t", "Time", timing);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "t_sum 90.502002",
                "t_count 6",
                "t_bucket{le=\"0.001\"} 2",
                "t_bucket{le=\"0.25\"} 4",
                "t_bucket{le=\"+Inf\"} 6",
            ]
        );
    }
}
