//! A common interface to the limiters that are compared.
//!
//! All have the same limit: room for a hundred million requests that flow back at a thousand a day.
//! So everything is admitted, which is the longer path, the one that writes; and no key becomes idle
//! during a run, so that the clean-up of idle keys is not measured.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use governor::clock::DefaultClock;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};
use tidegate::{Algorithm, Limit, Limiter, Rate};

const BURST: u32 = 100_000_000;
const PER_DAY: u32 = 1_000;
const DAY: Duration = Duration::from_secs(86_400);

/// Something that can be asked about a key.
pub trait Contender: Sync {
    /// Its name in the table.
    fn name(&self) -> &'static str;
    /// Charges one request to `key`.
    fn check(&self, key: &String) -> bool;
}

/// Tidegate's limiter with a token bucket, as its README shows it.
pub struct Tidegate(Limiter);

impl Tidegate {
    pub fn new() -> Self {
        let rate = Rate::new(PER_DAY.into(), DAY).burst(BURST.into());
        let limit = Limit::new(rate, Algorithm::TOKEN_BUCKET).expect("a sound limit");
        let limiter = Limiter::builder_for(vec![limit]).max_keys(16_000_000);
        Self(limiter.build().expect("a sound limit"))
    }
}

impl Default for Tidegate {
    fn default() -> Self {
        Self::new()
    }
}

impl Contender for Tidegate {
    fn name(&self) -> &'static str {
        "tidegate"
    }

    fn check(&self, key: &String) -> bool {
        self.0.check(key).is_allowed()
    }
}

/// governor's keyed limiter with its default store and clock.
pub struct Governor(RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock>);

impl Governor {
    pub fn new() -> Self {
        let quota = Quota::with_period(DAY / PER_DAY)
            .expect("not zero")
            .allow_burst(NonZeroU32::new(BURST).expect("not zero"));
        Self(RateLimiter::keyed(quota))
    }
}

impl Default for Governor {
    fn default() -> Self {
        Self::new()
    }
}

impl Contender for Governor {
    fn name(&self) -> &'static str {
        "governor"
    }

    fn check(&self, key: &String) -> bool {
        self.0.check_key(key).is_ok()
    }
}

/// throttlecrab's library, which needs exclusive access: behind a lock, as its users put it.
pub struct Throttlecrab(Mutex<throttlecrab::RateLimiter<throttlecrab::PeriodicStore>>);

impl Throttlecrab {
    pub fn new() -> Self {
        let store = throttlecrab::PeriodicStore::builder()
            .cleanup_interval(DAY)
            .build();
        Self(Mutex::new(throttlecrab::RateLimiter::new(store)))
    }
}

impl Default for Throttlecrab {
    fn default() -> Self {
        Self::new()
    }
}

impl Contender for Throttlecrab {
    fn name(&self) -> &'static str {
        "throttlecrab"
    }

    fn check(&self, key: &String) -> bool {
        let mut limiter = self.0.lock().expect("no thread panics");
        limiter
            .rate_limit(
                key,
                BURST.into(),
                PER_DAY.into(),
                86_400,
                1,
                SystemTime::now(),
            )
            .is_ok_and(|(allowed, _)| allowed)
    }
}
