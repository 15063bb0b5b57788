//! The libraries of other projects.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::SystemTime;

use governor::clock::DefaultClock;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};
use limitador::limit::{Context, Namespace};

use super::{BURST, Contender, DAY, PER_DAY};

/// governor's keyed limiter with its default store and clock.
pub(super) struct Governor(RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock>);

impl Governor {
    pub(super) fn new() -> Self {
        let quota = Quota::with_period(DAY / PER_DAY)
            .expect("not zero")
            .allow_burst(NonZeroU32::new(BURST).expect("not zero"));
        Self(RateLimiter::keyed(quota))
    }
}

impl Contender for Governor {
    /// Its keys are Strings, and it takes a reference to one.
    fn check(&self, key: &str) -> bool {
        self.0.check_key(&key.to_owned()).is_ok()
    }

    fn check_number(&self, number: u64, key: &mut String) -> bool {
        use std::fmt::Write as _;
        key.clear();
        let _ = write!(key, "user:{number}");
        self.0.check_key(key).is_ok()
    }
}

/// throttlecrab's library, which needs exclusive access: behind a lock, as its users put it.
pub(super) struct Throttlecrab(Mutex<throttlecrab::RateLimiter<throttlecrab::PeriodicStore>>);

impl Throttlecrab {
    pub(super) fn new() -> Self {
        let store = throttlecrab::PeriodicStore::builder()
            .cleanup_interval(DAY)
            .build();
        Self(Mutex::new(throttlecrab::RateLimiter::new(store)))
    }
}

impl Contender for Throttlecrab {
    fn check(&self, key: &str) -> bool {
        let mut limiter = self.0.lock().expect("no thread panics");
        let now = SystemTime::now();
        limiter
            .rate_limit(key, BURST.into(), PER_DAY.into(), 86_400, 1, now)
            .is_ok_and(|(allowed, _)| allowed)
    }
}

/// Limitador with its counters in memory: a limit with one variable.
pub(super) struct Limitador {
    limiter: limitador::RateLimiter,
    namespace: Namespace,
}

impl Limitador {
    pub(super) fn new(keys: u64) -> Self {
        let limit = limitador::limit::Limit::new(
            "bench",
            BURST.into(),
            DAY.as_secs(),
            Vec::new(),
            vec!["user_id".try_into().expect("a variable")],
        );
        // It removes keys beyond this number, and some before.
        let limiter = limitador::RateLimiter::new(keys * 2 + 1_000);
        limiter.add_limit(limit);
        Self {
            limiter,
            namespace: "bench".into(),
        }
    }
}

impl Contender for Limitador {
    fn check(&self, key: &str) -> bool {
        let values = HashMap::from([("user_id".to_owned(), key.to_owned())]);
        let context = Context::from(values);
        self.limiter
            .check_rate_limited_and_update(&self.namespace, &context, 1)
            .is_ok_and(|result| !result.limited)
    }
}
