//! Quantiles of the times of the last ten minutes, within 1 %: counts by the logarithm of the time, in five parts of two
//! minutes, as summaries of Prometheus are kept.

/// How long a part lasts, in seconds.
const PART: u64 = 120;
const PARTS: usize = 5;
/// Each power of two is divided into so many buckets.
const STEPS: u32 = 64;
/// Buckets for all times up to 2^32 µs, more than an hour.
const BUCKETS: usize = (32 * STEPS) as usize;

/// Counts of recent times.
#[derive(Debug)]
pub(super) struct RecentTimes {
    parts: [RecentPart; PARTS],
}

#[derive(Debug, Default)]
struct RecentPart {
    /// Which part of the time since the start it is, counted from zero.
    number: u64,
    /// Empty until it is used.
    counts: Vec<u32>,
}

impl RecentTimes {
    pub(super) fn new() -> Self {
        Self {
            parts: std::array::from_fn(|_| RecentPart::default()),
        }
    }

    pub(super) fn note(&mut self, micros: u64, seconds: u64) {
        let number = seconds / PART;
        let part = &mut self.parts[(number % PARTS as u64) as usize];
        if part.number != number || part.counts.is_empty() {
            part.number = number;
            part.counts.clear();
            part.counts.resize(BUCKETS, 0);
        }
        let count = &mut part.counts[bucket_of(micros)];
        *count = count.saturating_add(1);
    }

    /// The time at a quantile; not a number without times.
    pub(super) fn quantile(&mut self, quantile: f64, seconds: u64) -> f64 {
        let oldest = (seconds / PART).saturating_sub(PARTS as u64 - 1);
        let recent = self.parts.iter().filter(|part| part.number >= oldest);
        let recent: Vec<&RecentPart> = recent.filter(|part| !part.counts.is_empty()).collect();
        let count_of = |bucket: usize| -> u64 {
            recent
                .iter()
                .map(|part| u64::from(part.counts[bucket]))
                .sum()
        };
        let all: u64 = (0..BUCKETS).map(count_of).sum();
        if all == 0 {
            return f64::NAN;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and rounds as is wanted"
        )]
        let rank = ((all as f64 * quantile).ceil() as u64).clamp(1, all);
        let mut sum = 0;
        let found = (0..BUCKETS).find(|bucket| {
            sum += count_of(*bucket);
            sum >= rank
        });
        middle_of(found.unwrap_or(BUCKETS - 1))
    }
}

/// Times below `STEPS` have a bucket of their own.
fn bucket_of(micros: u64) -> usize {
    let micros = u32::try_from(micros).unwrap_or(u32::MAX);
    if micros < STEPS {
        return micros as usize;
    }
    let power = micros.ilog2() - STEPS.ilog2();
    // From STEPS to 2 × STEPS - 1.
    let step = micros >> power;
    ((power * STEPS) + step) as usize
}

fn middle_of(bucket: usize) -> f64 {
    let bucket = u32::try_from(bucket).unwrap_or(u32::MAX);
    if bucket < 2 * STEPS {
        return f64::from(bucket);
    }
    let power = bucket / STEPS - 1;
    let step = bucket - power * STEPS;
    (f64::from(step) + 0.5) * f64::from(power).exp2()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_older_than_ten_minutes_no_longer_counts() {
        let mut times = RecentTimes::new();
        assert!(times.quantile(0.5, 0).is_nan());
        times.note(10, 0);
        times.note(20, 599);
        #[expect(clippy::float_cmp, reason = "small times are exact")]
        for (seconds, expected) in [(599, 10.0), (600, 20.0), (1_079, 20.0)] {
            assert_eq!(times.quantile(0.5, seconds), expected, "{seconds}");
        }
        assert!(times.quantile(0.5, 1_080).is_nan());
        times.note(30, 1_200);
        #[expect(clippy::float_cmp, reason = "small times are exact")]
        let is_new_alone = times.quantile(0.1, 1_200) == 30.0;
        assert!(is_new_alone);
    }

    proptest! {
        #[test]
        fn a_time_is_found_within_1_percent(micros in 0..=u64::from(u32::MAX)) {
            let mut times = RecentTimes::new();
            times.note(micros, 0);
            let found = times.quantile(0.5, 0);
            #[expect(clippy::cast_precision_loss, reason = "it is below 2^32")]
            let exact = micros as f64;
            prop_assert!((found - exact).abs() <= exact * 0.01, "{} {}", micros, found);
        }
    }
}
