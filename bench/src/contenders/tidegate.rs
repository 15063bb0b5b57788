//! Tidegate's limiter with a token bucket, as its README shows it.

use tidegate::{Algorithm, Limit, Limiter, Rate};

use super::{BURST, Contender, DAY, PER_DAY};

pub(super) struct Tidegate(Limiter);

impl Tidegate {
    pub(super) fn new() -> Self {
        let rate = Rate::new(PER_DAY.into(), DAY).burst(BURST.into());
        let limit = Limit::new(rate, Algorithm::TOKEN_BUCKET).expect("a sound limit");
        let limiter = Limiter::builder_for(vec![limit]).max_keys(16_000_000);
        Self(limiter.build().expect("a sound limit"))
    }
}

impl Contender for Tidegate {
    fn check(&self, key: &str) -> bool {
        self.0.check(key).is_allowed()
    }
}
