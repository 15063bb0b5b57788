//! The results of a run, as text and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::plan::LoadPlan;
use crate::protocol::Target;
use crate::record::LoadRecord;

/// The results of a run. Times are in seconds.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// The requests and the server.
    pub target: String,
    /// How many connections were open.
    pub connections: usize,
    /// How many requests were on their way at the same time on each.
    pub in_flight: usize,
    /// The rate of an open loop, in requests per second; null for a closed loop.
    pub rate: Option<f64>,
    /// How many keys there were.
    pub keys: u64,
    /// The exponent of Zipf's law; null if each key was as likely as any other.
    pub zipf: Option<f64>,
    /// Whether keys came one after the other.
    pub in_order: bool,
    /// How long requests were counted.
    pub seconds: f64,
    /// Requests that were sent and counted.
    pub requests: u64,
    /// Answers per second.
    pub per_second: f64,
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests without a decision, by kind of error.
    pub errors: BTreeMap<String, u64>,
    /// Requests of an open loop that were due, but for which no connection became free.
    pub unsent: u64,
    /// The time from when a request began, in an open loop from when it was due, to its answer.
    pub latency: LatencyReport,
}

/// How long answers took, in seconds.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LatencyReport {
    /// The mean.
    pub mean: f64,
    /// The shortest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// 90 of 100 took no longer.
    pub p90: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
    /// 999 of 1,000 took no longer.
    #[serde(rename = "p99.9")]
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// How many took how long, by powers of two.
    pub buckets: Vec<LatencyBucket>,
}

/// Answers that took about as long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LatencyBucket {
    /// They took at least this long,
    pub from: f64,
    /// and less than this.
    pub to: f64,
    /// How many.
    pub count: u64,
}

impl LoadReport {
    pub(crate) fn new(
        plan: &LoadPlan,
        target: &Target,
        record: &LoadRecord,
        measured: Duration,
        unsent: u64,
    ) -> Self {
        let seconds = measured.as_secs_f64();
        let answers = record.latencies.len();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let per_second = if seconds > 0.0 {
            answers as f64 / seconds
        } else {
            0.0
        };
        Self {
            target: target.to_string(),
            connections: plan.connections,
            in_flight: plan.in_flight,
            rate: plan.rate,
            keys: plan.keys.keys,
            zipf: plan.keys.exponent,
            in_order: plan.keys.is_in_order,
            seconds,
            requests: record.requests(),
            per_second,
            allowed: record.allowed,
            denied: record.denied,
            errors: record.errors.clone(),
            unsent,
            latency: LatencyReport::new(record),
        }
    }
}

impl LatencyReport {
    fn new(record: &LoadRecord) -> Self {
        let latencies = &record.latencies;
        let at = |quantile| seconds(latencies.value_at_quantile(quantile));
        let mut buckets: Vec<LatencyBucket> = Vec::new();
        for recorded in latencies.iter_recorded() {
            let from = recorded.value_iterated_to().max(1).ilog2();
            let (from, to) = (seconds(1 << from), seconds(2 << from.min(62)));
            let count = recorded.count_since_last_iteration();
            match buckets.last_mut() {
                Some(last) if last.from.total_cmp(&from).is_eq() => last.count += count,
                _ => buckets.push(LatencyBucket { from, to, count }),
            }
        }
        Self {
            mean: latencies.mean() / NANOS,
            min: seconds(latencies.min()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: seconds(latencies.max()),
            buckets,
        }
    }
}

/// Nanoseconds of a second.
const NANOS: f64 = 1e9;

#[expect(clippy::cast_precision_loss, reason = "three digits are known")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / NANOS
}
