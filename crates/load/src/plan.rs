//! How much load is sent.

use std::time::Duration;

use crate::error::LoadRunError;
use crate::keys::KeySpread;

/// The most connections times requests in flight on each.
const MAX_LANES: usize = 100_000;
/// The highest rate, in requests per second.
const MAX_RATE: f64 = 10_000_000.0;

/// How much load is sent, and when it ends.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadPlan {
    /// How many connections are open.
    pub connections: usize,
    /// How many requests are on their way at the same time on each: streams of gRPC, or commands of the Redis
    /// protocol that are sent together. HTTP/1.1 has one.
    pub in_flight: usize,
    /// When the load ends.
    pub end: LoadEnd,
    /// Requests per second in an open loop. Without it the loop is closed: each connection sends its next
    /// request when the last one is answered.
    pub rate: Option<f64>,
    /// Which keys the requests have.
    pub keys: KeySpread,
    /// How long load is sent before anything is counted.
    pub warm_up: Duration,
    /// The keys are the same for the same seed.
    pub seed: u64,
    /// How long a request waits for its answer.
    pub timeout: Duration,
}

/// When the load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadEnd {
    /// After so long, not counting the warm-up.
    After(Duration),
    /// After this many requests, not counting the warm-up.
    Requests(u64),
}

impl LoadPlan {
    /// 64 connections in a closed loop for 10 seconds, after a second of warm-up.
    pub fn new(keys: KeySpread) -> Self {
        Self {
            connections: 64,
            in_flight: 1,
            end: LoadEnd::After(Duration::from_secs(10)),
            rate: None,
            keys,
            warm_up: Duration::from_secs(1),
            seed: 1,
            timeout: Duration::from_secs(10),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), LoadRunError> {
        let invalid = |problem: String| Err(LoadRunError::Invalid(problem));
        let lanes = self.connections.saturating_mul(self.in_flight);
        if lanes == 0 || lanes > MAX_LANES {
            return invalid(format!(
                "connections times requests in flight must be from 1 to {MAX_LANES}, not {lanes}"
            ));
        }
        if let Some(rate) = self.rate
            && !(rate > 0.0 && rate <= MAX_RATE)
        {
            return invalid(format!(
                "the rate `{rate}` must be above 0 and at most {MAX_RATE} requests a second"
            ));
        }
        match self.end {
            LoadEnd::After(Duration::ZERO) | LoadEnd::Requests(0) => {
                invalid("the load must have a length above zero".into())
            }
            _ if self.timeout.is_zero() => invalid("the timeout must be above zero".into()),
            _ => Ok(()),
        }
    }
}
