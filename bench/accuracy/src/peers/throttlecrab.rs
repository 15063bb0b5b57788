//! throttlecrab's library, which takes the time as an argument.

use std::time::{Duration, UNIX_EPOCH};

use throttlecrab::{PeriodicStore, RateLimiter};

use super::VirtualLimiter;

pub struct PeerThrottlecrab {
    limiter: RateLimiter<PeriodicStore>,
    count: i64,
}

impl PeerThrottlecrab {
    /// So many requests per second, and as many at once.
    pub fn new(count: u64) -> Self {
        Self {
            limiter: RateLimiter::new(PeriodicStore::builder().build()),
            count: i64::try_from(count).expect("a count"),
        }
    }
}

impl VirtualLimiter for PeerThrottlecrab {
    fn charge(&mut self, key: u32, nanos: u64) -> Result<(), u64> {
        let now = UNIX_EPOCH + Duration::from_nanos(nanos);
        let (count, key) = (self.count, key.to_string());
        let answer = self.limiter.rate_limit(&key, count, count, 1, 1, now);
        match answer.expect("it answers") {
            (true, _) => Ok(()),
            (false, result) => Err(result.retry_after.as_nanos() as u64),
        }
    }
}
