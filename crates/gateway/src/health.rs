//! The health of a server behind the gateway: passive, by failed connections, and active, by checks.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_listen::clock::{Instant, now};

/// How long a server is skipped after its first failure. Doubled with each further one.
const FIRST_REST: Duration = Duration::from_millis(250);
const LONGEST_REST: Duration = Duration::from_secs(15);

/// How many checks in a row must fail before a server is unhealthy.
const FAILED_CHECKS: u32 = 2;

/// Whether requests go to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Up,
    /// A connection failed, and the server is skipped for a while.
    Resting,
    /// Its health checks fail.
    Down,
}

/// The health of one server. Requests and checks report in any order, and it need not be exact.
pub(crate) struct UpstreamHealth {
    name: String,
    since: Instant,
    failures: AtomicU32,
    /// When it is tried again, in microseconds since `since`.
    rests_until: AtomicU64,
    /// Whether a request is trying it now.
    is_tried: AtomicBool,
    failed_checks: AtomicU32,
}

impl UpstreamHealth {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            since: now(),
            failures: AtomicU32::new(0),
            rests_until: AtomicU64::new(0),
            is_tried: AtomicBool::new(false),
            failed_checks: AtomicU32::new(0),
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        if self.failed_checks.load(Ordering::Relaxed) >= FAILED_CHECKS {
            return Standing::Down;
        }
        // The clock is read only for a server that has failed.
        let has_failed = self.failures.load(Ordering::Relaxed) > 0;
        if has_failed && self.now() < self.rests_until.load(Ordering::Relaxed) {
            return Standing::Resting;
        }
        Standing::Up
    }

    /// Whether a request may try a skipped server: one at a time; the first success ends the pause.
    pub(crate) fn may_try(&self) -> bool {
        self.standing() == Standing::Resting && !self.is_tried.swap(true, Ordering::Relaxed)
    }

    /// A connection failed.
    pub(crate) fn failed(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).min(16);
        let rest = LONGEST_REST.min(FIRST_REST * (1 << failures));
        let until = self.now() + u64::try_from(rest.as_micros()).unwrap_or(u64::MAX);
        self.rests_until.store(until, Ordering::Relaxed);
        self.is_tried.store(false, Ordering::Relaxed);
        if failures == 0 {
            tracing::warn!(upstream = self.name, "cannot connect to an upstream");
        }
    }

    /// A connection was made.
    pub(crate) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.is_tried.store(false, Ordering::Relaxed);
            tracing::info!(upstream = self.name, "an upstream is reachable again");
        }
    }

    /// An attempt was dropped, with an unknown result.
    pub(crate) fn given_up(&self) {
        self.is_tried.store(false, Ordering::Relaxed);
    }

    /// The result of a health check.
    pub(crate) fn checked(&self, is_well: bool) {
        if is_well {
            self.succeeded();
            if self.failed_checks.swap(0, Ordering::Relaxed) >= FAILED_CHECKS {
                tracing::info!(upstream = self.name, "an upstream is healthy again");
            }
        } else if self.failed_checks.fetch_add(1, Ordering::Relaxed) + 1 == FAILED_CHECKS {
            tracing::warn!(upstream = self.name, "an upstream is unhealthy");
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_rests_for_twice_as_long_after_each_failure() {
        let health = UpstreamHealth::new("http://a".to_owned());
        let milli = Duration::from_millis(1);
        let mut rest = FIRST_REST;
        for _ in 0..10 {
            health.failed();
            advance(rest.saturating_sub(milli)).await;
            assert_eq!(health.standing(), Standing::Resting, "{rest:?}");
            advance(milli).await;
            assert_eq!(health.standing(), Standing::Up, "{rest:?}");
            rest = LONGEST_REST.min(rest * 2);
        }
        health.succeeded();
        health.failed();
        advance(FIRST_REST).await;
        assert_eq!(health.standing(), Standing::Up);
    }
}
