//! The rule of a seed: one limit, how instances share it, and what they do without Redis.

use tidegate_core::algorithm::Form;
use tidegate_core::{Algorithm, Limit, Micros, Rate};

use crate::random::SeededRandom;

/// What the instances do while Redis is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithoutRedis {
    Allow,
    Deny,
    Local,
}

/// One rule.
#[derive(Debug, Clone)]
pub(crate) struct SeedRule {
    pub(crate) algorithm: Algorithm,
    pub(crate) count: u64,
    pub(crate) window: Micros,
    /// The capacity of a bucket, in hundredths of the count.
    burst_percent: u64,
    pub(crate) is_leased: bool,
    pub(crate) without_redis: WithoutRedis,
}

impl SeedRule {
    pub(crate) fn draw(random: &mut SeededRandom, is_calm: bool) -> Self {
        let is_leased = random.happens(750);
        let slots = Algorithm::SlidingWindowSlots {
            slots: Some(random.choose(&[4, 5, 10])),
            strict: random.happens(500),
        };
        let bucket = Algorithm::TokenBucket {
            max_delay: Micros::ZERO,
        };
        let algorithm = match random.below(8) {
            0 | 1 => Algorithm::FIXED_WINDOW,
            2 => Algorithm::SlidingWindowCounter,
            3 => slots,
            4 if !is_leased => Algorithm::SlidingWindowLog,
            5 => Algorithm::LeakyBucket { shape: false },
            _ => bucket,
        };
        let window = Micros::from_millis(random.choose(&[500, 500, 500, 1_000, 1_000, 2_000]));
        // In a second.
        let count = random.between(if is_calm { 60 } else { 8 }, 120);
        Self {
            algorithm,
            count: (count * window.get() / 1_000_000).max(4),
            window,
            burst_percent: random.between(if is_calm { 60 } else { 25 }, 100),
            is_leased,
            without_redis: random.choose(&[
                WithoutRedis::Allow,
                WithoutRedis::Deny,
                WithoutRedis::Local,
                WithoutRedis::Local,
            ]),
        }
    }

    fn burst(&self, count: u64) -> Option<u64> {
        let burst = (count * self.burst_percent / 100).max(1);
        self.algorithm.is_bucket().then_some(burst)
    }

    /// The window or slot with which leases end; none for a bucket.
    pub(crate) fn span(&self) -> Option<Micros> {
        match self.limit(self.count).form() {
            Form::Bucket(_) => None,
            Form::SlidingSlots(slots) => Some(slots.slot()),
            _ => Some(self.window),
        }
    }

    /// The limit with this count.
    pub(crate) fn limit(&self, count: u64) -> Limit {
        let mut rate = Rate::new(count, self.window);
        rate.burst = self.burst(count);
        #[expect(clippy::expect_used, reason = "all limits that are drawn are valid")]
        Limit::new(rate, self.algorithm).expect("the limit is valid")
    }

    /// The rules of an instance, with this count.
    pub(crate) fn yaml(&self, count: u64) -> String {
        let burst = self
            .burst(count)
            .map_or_else(String::new, |burst| format!(" burst {burst}"));
        let options = match self.algorithm {
            Algorithm::SlidingWindowSlots {
                slots: Some(slots),
                strict,
            } => format!("    slots: {slots}\n    strict: {strict}\n"),
            Algorithm::LeakyBucket { shape } => format!("    shape: {shape}\n"),
            _ => String::new(),
        };
        let without_redis = match self.without_redis {
            WithoutRedis::Allow => "allow",
            WithoutRedis::Deny => "deny",
            WithoutRedis::Local => "local",
        };
        format!(
            "rules:\n  - id: seed\n    per: [user_id]\n    limit: {count}/{}ms{burst}\n    algorithm: {}\n{options}    sync: {}\n    on_store_failure: {without_redis}\n",
            self.window.get() / 1_000,
            self.algorithm.name(),
            if self.is_leased { "leased" } else { "exact" },
        )
    }
}
