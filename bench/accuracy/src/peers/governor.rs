//! governor's keyed limiter with its own fake clock.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use super::VirtualLimiter;

pub struct PeerGovernor {
    limiter: RateLimiter<u32, HashMapStateStore<u32>, FakeRelativeClock, NoOpMiddleware<Nanos>>,
    clock: FakeRelativeClock,
    /// What the clock shows, as nanoseconds since the epoch; none before the first request.
    shown: Option<u64>,
}

impl PeerGovernor {
    /// So many requests per second, and as many at once.
    pub fn new(count: u64) -> Self {
        let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
        let clock = FakeRelativeClock::default();
        let quota = Quota::per_second(count.expect("a count"));
        Self {
            limiter: RateLimiter::new(quota, HashMapStateStore::default(), clock.clone()),
            clock,
            shown: None,
        }
    }
}

impl VirtualLimiter for PeerGovernor {
    fn charge(&mut self, key: u32, nanos: u64) -> Result<(), u64> {
        let passed = nanos - self.shown.unwrap_or(nanos);
        self.clock.advance(Duration::from_nanos(passed));
        self.shown = Some(nanos);
        let now = self.clock.now();
        self.limiter
            .check_key(&key)
            .map_err(|denied| denied.wait_time_from(now).as_nanos() as u64)
    }
}
