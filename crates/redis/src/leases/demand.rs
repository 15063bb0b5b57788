//! How fast the units of a pool are asked for, measured over a short time.

use std::time::Duration;

use tokio::time::Instant;

/// For how long requests are counted.
const SPAN: Duration = Duration::from_millis(100);

/// How many units were asked for in the current span, and in the one before.
#[derive(Debug)]
pub(super) struct PoolDemand {
    since: Instant,
    asked: u64,
    before: u64,
}

impl PoolDemand {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            asked: 0,
            before: 0,
        }
    }

    /// Counts the cost of one request.
    pub(super) fn count(&mut self, cost: u64, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= SPAN {
            self.before = part(self.asked, SPAN, passed);
            (self.since, self.asked) = (now, 0);
        }
        self.asked = self.asked.saturating_add(cost);
    }

    /// How many units will be asked for in a time of this length at the measured rate. Lags behind a demand that
    /// rises.
    pub(super) fn expected(&self, length: Duration) -> u64 {
        part(self.asked.max(self.before), length, SPAN)
    }

    /// How many units were asked for in a tenth of a second lately: none if it is longer ago than that.
    pub(super) fn lately(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.since);
        if passed < SPAN {
            self.asked.max(self.before)
        } else if passed < 2 * SPAN {
            part(self.asked, SPAN, passed)
        } else {
            0
        }
    }
}

/// `units * numerator / denominator`.
fn part(units: u64, numerator: Duration, denominator: Duration) -> u64 {
    let part =
        u128::from(units).saturating_mul(numerator.as_micros()) / denominator.as_micros().max(1);
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monotonic::now;

    #[tokio::test(start_paused = true)]
    async fn what_comes_is_what_came_in_the_last_tenth_of_a_second() {
        let mut demand = PoolDemand::new(now());
        for _ in 0..10 {
            demand.count(2, now());
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert_eq!(demand.expected(Duration::from_secs(1)), 200);
        demand.count(1, now());
        assert_eq!(demand.expected(Duration::from_secs(1)), 200, "as before");
        demand.count(49, now());
        assert_eq!(demand.expected(Duration::from_secs(1)), 500, "it rises");
        assert_eq!(demand.lately(now()), 50);
        tokio::time::advance(Duration::from_millis(125)).await;
        assert_eq!(demand.lately(now()), 40, "it fades");
        tokio::time::advance(Duration::from_millis(9_875)).await;
        assert_eq!(demand.lately(now()), 0);
        demand.count(1, now());
        assert_eq!(demand.expected(Duration::from_secs(1)), 10, "it has ended");
    }
}
