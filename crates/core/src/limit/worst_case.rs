//! The most that a limit can admit under any traffic.

use super::{Algorithm, Limit};
use crate::algorithm::Form;

/// The most that a limit can admit. A request counts when it proceeds: a delayed one at the end of its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorstCase {
    /// In any half-open interval as long as the window; for a month or a year, as its shortest. None for concurrency,
    /// which has no window.
    pub window: Option<u64>,
    /// At one instant.
    pub instant: u64,
}

impl Limit {
    /// The most that it can admit of requests that cost 1.
    ///
    /// Buckets and `sliding_window_log` can reach it. For windows of the clock and slots it is an upper bound.
    ///
    /// ```
    /// use tidegate_core::Limit;
    ///
    /// let bucket: Limit = "3/minute".parse()?;
    /// let worst_case = bucket.worst_case();
    /// assert_eq!((worst_case.window, worst_case.instant), (Some(5), 3));
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn worst_case(&self) -> WorstCase {
        let count = self.rate.count;
        let (window, instant) = match (&self.form, self.algorithm) {
            (Form::Bucket(_), Algorithm::LeakyBucket { shape: true }) => (count, 1),
            // A full bucket, plus the requests that flow back before a window has passed.
            (Form::Bucket(bucket), _) => (bucket.burst() + count - 1, bucket.burst()),
            (Form::SlidingLog(_), _)
            | (Form::SlidingSlots(_), Algorithm::SlidingWindowSlots { strict: true, .. }) => {
                (count, count)
            }
            // The interval can lie across two windows, or over one slot more than is counted.
            (Form::FixedWindow(_) | Form::SlidingCounter(_) | Form::SlidingSlots(_), _) => {
                (count * 2, count)
            }
            (Form::Concurrency(_), _) => {
                return WorstCase {
                    window: None,
                    instant: count,
                };
            }
        };
        WorstCase {
            window: Some(window),
            instant,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Anchor, Limit, Micros};

    #[test]
    fn worst_cases_by_hand() {
        let first = Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        };
        let strict = Algorithm::SlidingWindowSlots {
            slots: None,
            strict: true,
        };
        let patient = Algorithm::TokenBucket {
            max_delay: Micros::SECOND,
        };
        #[rustfmt::skip]
        let table = [
            // limit                   algorithm                                 window        instant
            ("3/minute",               Algorithm::TOKEN_BUCKET,                  Some(5),      3),
            ("1/minute",               Algorithm::TOKEN_BUCKET,                  Some(1),      1),
            ("100/minute burst 20",    Algorithm::TOKEN_BUCKET,                  Some(119),    20),
            ("100/minute burst 20",    patient,                                  Some(119),    20),
            ("100/minute burst 20",    Algorithm::LeakyBucket { shape: false },  Some(119),    20),
            ("100/minute burst 20",    Algorithm::LEAKY_BUCKET,                  Some(100),    1),
            ("10000/day",              Algorithm::FIXED_WINDOW,                  Some(20_000), 10_000),
            ("10000/month",            Algorithm::FIXED_WINDOW,                  Some(20_000), 10_000),
            ("10/hour",                first,                                    Some(20),     10),
            ("10/hour",                Algorithm::SlidingWindowCounter,          Some(20),     10),
            ("10/hour",                Algorithm::SLIDING_WINDOW_SLOTS,          Some(20),     10),
            ("10/hour",                strict,                                   Some(10),     10),
            ("10/hour",                Algorithm::SlidingWindowLog,              Some(10),     10),
            ("10",                     Algorithm::CONCURRENCY,                   None,         10),
        ];
        for (text, algorithm, window, instant) in table {
            let limit = Limit::new(text.parse().unwrap(), algorithm).unwrap();
            let worst = limit.worst_case();
            assert_eq!(
                (worst.window, worst.instant),
                (window, instant),
                "{text} {algorithm:?}"
            );
        }
    }
}
