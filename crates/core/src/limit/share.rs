//! One instance's part of a limit, for times when the shared store is unavailable.

use super::{Limit, Rate};

impl Limit {
    /// The part of this limit that each of `instances` instances may grant by itself: count and
    /// burst divided, rounded down, at least one unless it grants nothing. Counted on the same state as the whole limit.
    ///
    /// ```
    /// use tidegate_core::Limit;
    ///
    /// let limit: Limit = "100/minute burst 20".parse()?;
    /// assert_eq!(limit.share(3).to_string(), "33/minute burst 6");
    /// assert_eq!(limit.share(50).to_string(), "2/minute burst 1");
    /// assert_eq!(limit.share(3).shape(), limit.shape());
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    #[must_use]
    pub fn share(&self, instances: u64) -> Self {
        let part = |whole: u64| (whole / instances.max(1)).max(whole.min(1));
        let rate = Rate {
            count: part(self.rate.count),
            burst: self.rate.burst.map(part),
            ..self.rate
        };
        // Rounding can make a bucket that fills slowly fill too slowly; a smaller one fills sooner.
        let smallest = Rate {
            burst: self.rate.burst.map(|_| 1),
            ..rate
        };
        self.at_rate(rate)
            .or_else(|_| self.at_rate(smallest))
            .unwrap_or_else(|_| self.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Anchor, Limit, Micros, Rate};

    #[test]
    fn shares_by_hand() {
        let day = Micros::DAY.times(366);
        let slow = Rate::new(15, day).burst(2_000);
        let day_of = |count| Limit::fixed_window(count, Micros::DAY.into(), Anchor::Clock).unwrap();
        #[rustfmt::skip]
        let table = [
            // limit                                            instances   count   burst
            ("10/minute".parse().unwrap(),                      1,          10,     10),
            ("10/minute".parse().unwrap(),                      0,          10,     10),
            ("10/minute".parse().unwrap(),                      3,          3,      3),
            ("10/minute burst 4".parse().unwrap(),              3,          3,      1),
            ("10/minute".parse().unwrap(),                      11,         1,      1),
            ("10/minute".parse().unwrap(),                      u64::MAX,   1,      1),
            ("10/month".parse().unwrap(),                       4,          2,      2),
            (Limit::concurrent(7).unwrap(),                     2,          3,      3),
            (Limit::portable_bucket(10, Micros::MINUTE, 4).unwrap(),       3,          3,      1),
            (Limit::new(slow, Algorithm::TOKEN_BUCKET).unwrap(), 8,         1,      250),
            (day_of(0),                                         8,          0,      0),
            (day_of(4_000_000_000),                             2,          2_000_000_000, 2_000_000_000),
        ];
        for (limit, instances, count, capacity) in table {
            let limit: Limit = limit;
            let share = limit.share(instances);
            assert_eq!(
                (share.rate().count, share.capacity()),
                (count, capacity),
                "{limit} of {instances}"
            );
            assert_eq!(share.shape(), limit.shape(), "{limit}");
            assert_eq!(share.algorithm(), limit.algorithm(), "{limit}");
        }
    }

    #[test]
    fn a_bucket_whose_share_would_fill_too_slowly_has_a_smaller_one() {
        let year = Micros::DAY.times(366);
        let slowest = (1..=5_000)
            .rev()
            .find_map(|burst| {
                Limit::new(Rate::new(15, year).burst(burst), Algorithm::TOKEN_BUCKET).ok()
            })
            .unwrap();
        let share = slowest.share(8);
        assert_eq!(share.rate().count, 1);
        assert_eq!(share.capacity(), 1);
        assert_eq!(share.shape(), slowest.shape());
    }
}
