//! What one call adds to the counters of one limit, by the arithmetic of envoyproxy/ratelimit. Integers alone.

/// The share of a limit from which its use counts as near it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NearLimitRatio {
    billionths: u64,
}

/// One descriptor of a call, and the limit that it was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitHits {
    /// What the limit grants in a window.
    pub limit: u64,
    /// What was used of it before this call; may be more than it grants.
    pub used: u64,
    /// What the call takes.
    pub hits: u64,
    /// Whether the call is over the limit, also where the limit only counts.
    pub is_over: bool,
    /// Whether that was remembered, without asking the store.
    pub is_remembered: bool,
    /// Whether the limit only counts.
    pub is_shadow: bool,
}

/// Counters of one limit, in the order of [`LIMIT_STATS`].
pub type LimitCounts = [u64; LIMIT_STATS.len()];

/// The last part of the names of a limit's stats, sorted.
pub const LIMIT_STATS: [&str; 6] = [
    "near_limit",
    "over_limit",
    "over_limit_with_local_cache",
    "shadow_mode",
    "total_hits",
    "within_limit",
];

impl Default for NearLimitRatio {
    fn default() -> Self {
        Self {
            billionths: 800_000_000,
        }
    }
}

impl std::str::FromStr for NearLimitRatio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ratio = text.parse().ok();
        // Beyond the limit nothing is near it.
        let ratio = ratio.filter(|ratio: &f64| ratio.is_finite() && *ratio >= 0.0);
        let ratio = ratio.ok_or_else(|| {
            format!("`{text}` is not a share of a limit; write for example `0.8`")
        })?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is from 0 to 1,000,000,000"
        )]
        let billionths = (ratio.min(1.0) * 1e9).round() as u64;
        Ok(Self { billionths })
    }
}

impl NearLimitRatio {
    /// The use above which a limit is near.
    fn of(self, limit: u64) -> u64 {
        let share = u128::from(limit) * u128::from(self.billionths) / 1_000_000_000;
        u64::try_from(share).unwrap_or(limit)
    }
}

impl LimitHits {
    /// What the call adds to each counter.
    pub fn counts(&self, near: NearLimitRatio) -> LimitCounts {
        let used_after = self.used.saturating_add(self.hits);
        let within_limit = if self.is_over { 0 } else { self.hits };
        let over_limit = match used_after.checked_sub(self.limit) {
            _ if !self.is_over => 0,
            Some(beyond) if beyond > 0 && self.used < self.limit => beyond,
            _ => self.hits,
        };
        let near_from = self.used.max(near.of(self.limit));
        let near_limit = used_after.min(self.limit).saturating_sub(near_from);
        let if_over = |is_counted: bool, count: u64| if is_counted { count } else { 0 };
        [
            near_limit,
            over_limit,
            if_over(self.is_over && self.is_remembered, self.hits),
            if_over(self.is_shadow, over_limit),
            self.hits,
            within_limit,
        ]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEAR: usize = 0;
    const OVER: usize = 1;
    const WITHIN: usize = 5;

    #[test]
    fn counts_by_hand() {
        #[rustfmt::skip]
        let table = [
            // name                             limit   used    hits    over    near    over_limit  within
            ("far from the limit",              10,     0,      1,      false,  0,      0,          1),
            ("up to where near begins",         10,     7,      1,      false,  0,      0,          1),
            ("the first that is near",          10,     8,      1,      false,  1,      0,          1),
            ("partly near",                     10,     6,      4,      false,  2,      0,          4),
            ("the last one",                    10,     9,      1,      false,  1,      0,          1),
            ("the first that is over",          10,     10,     1,      true,   0,      1,          0),
            ("partly over",                     10,     9,      4,      true,   1,      3,          0),
            ("over at once",                    10,     0,      15,     true,   2,      5,          0),
            ("already beyond",                  10,     25,     3,      true,   0,      3,          0),
            ("a question at the limit",         10,     10,     0,      false,  0,      0,          0),
            ("a question beyond it",            10,     11,     0,      true,   0,      0,          0),
            ("a limit of nothing",              0,      0,      2,      true,   0,      2,          0),
            ("denied for another reason",       10,     3,      2,      true,   0,      2,          0),
            ("a rounded threshold",             3,      2,      1,      false,  1,      0,          1),
            ("the largest limit",       4_294_967_295,  4_294_967_290, 10, true, 5,     5,          0),
            ("no sum overflows",    u64::MAX,   u64::MAX,       u64::MAX, true, 0,      u64::MAX,   0),
        ];
        for (name, limit, used, hits, is_over, near, over, within) in table {
            let call = LimitHits {
                limit,
                used,
                hits,
                is_over,
                ..LimitHits::default()
            };
            let counts = call.counts(NearLimitRatio::default());
            assert_eq!(counts, [near, over, 0, 0, hits, within], "{name}");
            let shadow = LimitHits {
                is_shadow: true,
                is_remembered: true,
                ..call
            };
            let remembered = if is_over { hits } else { 0 };
            let counts = shadow.counts(NearLimitRatio::default());
            let expected = [near, over, remembered, over, hits, within];
            assert_eq!(counts, expected, "{name}, remembered and in shadow mode");
        }
    }

    #[test]
    fn ratios_are_decimal_fractions() {
        #[rustfmt::skip]
        let table = [
            ("0.8",     15,             Some(12)),
            ("0.29",    100,            Some(29)),
            (".5",      5,              Some(2)),
            ("8e-1",    10,             Some(8)),
            ("0",       10,             Some(0)),
            ("1",       10,             Some(10)),
            ("2.5",     10,             Some(10)),
            ("0.8",     4_294_967_295,  Some(3_435_973_836)),
            ("-0.1",    10,             None),
            ("NaN",     10,             None),
            ("inf",     10,             None),
            ("80%",     10,             None),
            ("",        10,             None),
        ];
        for (text, limit, expected) in table {
            let ratio = text.parse::<NearLimitRatio>().ok();
            assert_eq!(ratio.map(|ratio| ratio.of(limit)), expected, "{text}");
        }
    }

    proptest! {
        /// Counted one by one, each hit is within the limit or over it, and near or not.
        #[test]
        fn counts_are_those_of_single_hits(limit in 0..50_u64, used in 0..70_u64, hits in 0..60_u64, percent in 0..=100_u64) {
            let near: NearLimitRatio = format!("{percent}e-2").parse().unwrap();
            let is_over = used + hits > limit;
            let call = LimitHits { limit, used, hits, is_over, ..LimitHits::default() };
            let counts = call.counts(near);
            let positions = used + 1..=used + hits;
            let beyond = positions.clone().filter(|position| *position > limit).count() as u64;
            let near = positions.filter(|position| *position > limit * percent / 100 && *position <= limit).count() as u64;
            prop_assert_eq!(counts[OVER], beyond);
            prop_assert_eq!(counts[NEAR], near);
            prop_assert_eq!(counts[WITHIN], if is_over { 0 } else { hits });
        }
    }
}
