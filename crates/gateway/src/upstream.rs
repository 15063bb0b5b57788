//! A server behind the gateway: its address, health and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tidegate_listen::Timing;

use crate::health::{Standing, UpstreamHealth};
use crate::upstream_url::UpstreamUrl;

/// Bucket bounds for the time to the head of an answer, in seconds.
const BOUNDS: [f64; 13] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

/// The result of a forwarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardResult {
    /// It was answered, with a status of this class, 1 to 5.
    Answered(u8),
    /// It was not answered.
    Failed,
}

impl ForwardResult {
    pub(crate) const ALL: [Self; 6] = [
        Self::Answered(1),
        Self::Answered(2),
        Self::Answered(3),
        Self::Answered(4),
        Self::Answered(5),
        Self::Failed,
    ];

    pub(crate) fn from_status(status: StatusCode) -> Self {
        Self::Answered(u8::try_from(status.as_u16() / 100).map_or(5, |class| class.clamp(1, 5)))
    }

    fn index(self) -> usize {
        match self {
            Self::Answered(class) => usize::from(class.clamp(1, 5)) - 1,
            Self::Failed => 5,
        }
    }

    /// The name in metrics.
    pub(crate) fn name(self) -> &'static str {
        ["1xx", "2xx", "3xx", "4xx", "5xx", "failed"][self.index()]
    }
}

/// A server behind the gateway, shared by all workers.
pub(crate) struct Upstream {
    pub(crate) url: UpstreamUrl,
    /// Its index among all servers, and in every pool.
    pub(crate) index: usize,
    pub(crate) host: Option<HeaderValue>,
    pub(crate) health: UpstreamHealth,
    in_flight: AtomicUsize,
    outcomes: [AtomicU64; 6],
    retries: AtomicU64,
    pub(crate) seconds: Timing,
}

impl Upstream {
    pub(crate) fn new(url: UpstreamUrl, index: usize) -> Self {
        Self {
            host: HeaderValue::from_str(url.authority.as_str()).ok(),
            health: UpstreamHealth::new(url.to_string()),
            url,
            index,
            in_flight: AtomicUsize::new(0),
            outcomes: Default::default(),
            retries: AtomicU64::new(0),
            seconds: Timing::new(&BOUNDS),
        }
    }

    pub(crate) fn count(&self, outcome: ForwardResult) {
        self.outcomes[outcome.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn answered_after(&self, took: Duration) {
        self.seconds.note(took);
    }

    pub(crate) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn outcomes(&self, outcome: ForwardResult) -> u64 {
        self.outcomes[outcome.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Whether requests are sent to it.
    pub(crate) fn is_up(&self) -> bool {
        self.health.standing() == Standing::Up
    }

    /// Counts one more request in flight.
    pub(crate) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one request less.
    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// The least loaded server of those that are up and were not tried; a skipped one only if there is no other,
/// and then one request at a time.
pub(crate) fn pick<'u>(
    upstreams: &'u [Arc<Upstream>],
    tried: &[usize],
    turn: &AtomicUsize,
) -> Option<&'u Arc<Upstream>> {
    if let ([only], []) = (upstreams, tried)
        && only.health.standing() == Standing::Up
    {
        return Some(only);
    }
    let start = turn.fetch_add(1, Ordering::Relaxed);
    let (before, after) = upstreams.split_at(start % upstreams.len().max(1));
    let in_turn = || {
        let all = after.iter().chain(before);
        all.filter(|upstream| !tried.contains(&upstream.index))
    };
    let is_up = |upstream: &&Arc<Upstream>| upstream.health.standing() == Standing::Up;
    let free = in_turn()
        .filter(is_up)
        .min_by_key(|upstream| upstream.in_flight());
    free.or_else(|| in_turn().find(|upstream| upstream.health.may_try()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream_url::UpstreamScheme;

    fn upstream(index: usize) -> Arc<Upstream> {
        let port = 1 + u16::try_from(index).unwrap();
        let url = UpstreamUrl {
            scheme: UpstreamScheme::Http,
            authority: format!("h:{port}").parse().unwrap(),
            host: "h".to_owned(),
            port,
        };
        Arc::new(Upstream::new(url, index))
    }

    #[test]
    fn servers_take_turns_and_the_one_with_the_least_to_do_goes_first() {
        let (all, turn) = ([upstream(0), upstream(1), upstream(2)], AtomicUsize::new(0));
        let picked = |tried: &[usize]| pick(&all, tried, &turn).map(|upstream| upstream.index);
        let indices: Vec<_> = (0..6).map(|_| picked(&[]).unwrap()).collect();
        assert_eq!(indices, [0, 1, 2, 0, 1, 2]);
        all[0].begin();
        all[2].begin();
        assert_eq!((picked(&[]), picked(&[])), (Some(1), Some(1)));
        assert_ne!(picked(&[1]), Some(1));
        assert_eq!(picked(&[0, 1, 2]), None);
        all[1].health.failed();
        assert!((0..4).all(|_| picked(&[]) != Some(1)));
    }

    #[test]
    fn a_resting_server_is_tried_by_one_at_a_time() {
        let (all, turn) = ([upstream(0)], AtomicUsize::new(0));
        all[0].health.failed();
        assert!(pick(&all, &[], &turn).is_some());
        assert!(pick(&all, &[], &turn).is_none());
        all[0].health.failed();
        assert!(pick(&all, &[], &turn).is_some());
        all[0].health.succeeded();
        assert!((0..9).all(|_| pick(&all, &[], &turn).is_some()));
        all[0].health.checked(false);
        all[0].health.checked(false);
        assert!(pick(&all, &[], &turn).is_none());
        all[0].health.checked(true);
        assert!(pick(&all, &[], &turn).is_some());
    }
}
