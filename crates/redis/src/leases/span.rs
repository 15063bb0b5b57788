//! The window or slot that a lease is charged in, and ends with.

use std::time::Duration;

use tidegate_core::algorithm::Form;
use tidegate_core::{Anchor, Limit, Micros, Window};
use tokio::time::Instant;

/// Shorter windows are not leased: a lease takes too much of their time. Nor are buckets that fill faster: they would
/// be full while an instance waits for units to gather.
const SHORTEST: Micros = Micros::from_millis(100);
/// A bucket with less burst for each instance is not leased: used units count as leased until the instance
/// reports them, and the others would wait for that.
const BURST_EACH: u64 = 8;
/// Unused units go back for the last quarter of a span, within these bounds, so that they arrive in time.
const BEFORE_END: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(100)];

/// A window or slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    length: Duration,
    /// Whether the next one begins where this one ends.
    is_aligned: bool,
}

/// Whether `instances` instances take units of this limit in advance; if not, each request is decided in Redis.
pub(crate) fn is_leasable(limit: &Limit, instances: u64) -> bool {
    if let Form::Bucket(bucket) = limit.form() {
        let is_large = bucket.burst() >= BURST_EACH.saturating_mul(instances);
        return is_large && bucket.to_full() >= SHORTEST;
    }
    Span::for_limit(limit).is_none_or(|span| Micros::from(span.length) >= SHORTEST)
}

impl Span {
    /// None if the leases of this limit do not end with a window, or so late that it does not matter.
    pub(super) fn for_limit(limit: &Limit) -> Option<Self> {
        let (length, is_aligned) = match limit.form() {
            Form::SlidingSlots(slots) => (slots.slot(), true),
            Form::SlidingCounter(counter) => (counter.window(), true),
            Form::FixedWindow(fixed) => match fixed.window() {
                Window::Span(length) => (length, fixed.anchor() != Anchor::FirstRequest),
                Window::Month | Window::Year => return None,
            },
            Form::Bucket(_) | Form::SlidingLog(_) | Form::Concurrency(_) => return None,
        };
        Some(Self {
            length: length.into(),
            is_aligned,
        })
    }

    /// How long before the end unused units go back.
    pub(super) fn before_end(self) -> Duration {
        let [least, most] = BEFORE_END;
        (self.length / 4).clamp(least, most)
    }

    /// How much is left of the span at `now`, if one ends or has ended at `boundary`. None if that cannot be
    /// derived.
    pub(super) fn left(self, boundary: Instant, now: Instant) -> Option<Duration> {
        if now < boundary {
            return Some(boundary - now);
        }
        let passed = (now - boundary).as_micros() % self.length.as_micros().max(1);
        let passed = Duration::from_micros(u64::try_from(passed).unwrap_or(0));
        self.is_aligned.then(|| self.length.saturating_sub(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monotonic::now;
    use tidegate_core::{Algorithm, Rate};

    fn limit(window: u64, algorithm: Algorithm) -> Limit {
        Limit::new(Rate::new(10, Micros::from_millis(window)), algorithm).unwrap()
    }

    #[test]
    fn what_is_shorter_than_a_tenth_of_a_second_is_not_leased() {
        let slots = |slots| Algorithm::SlidingWindowSlots {
            slots: Some(slots),
            strict: false,
        };
        #[rustfmt::skip]
        let table = [
            (1_000,  Algorithm::SLIDING_WINDOW_SLOTS,  false),
            (1_000,  slots(10),                        true),
            (1_000,  slots(20),                        false),
            (100,    Algorithm::FIXED_WINDOW,          true),
            (99,     Algorithm::FIXED_WINDOW,          false),
            (99,     Algorithm::SlidingWindowCounter,  false),
            (100,    Algorithm::TOKEN_BUCKET,          true),
            (99,     Algorithm::TOKEN_BUCKET,          false),
        ];
        for (window, algorithm, leased) in table {
            let limit = limit(window, algorithm);
            assert_eq!(is_leasable(&limit, 1), leased, "{window} ms, {algorithm:?}");
        }
    }

    #[test]
    fn a_bucket_with_little_for_each_instance_is_not_leased() {
        let bucket = limit(1_000, Algorithm::TOKEN_BUCKET);
        assert_eq!(
            [1, 2].map(|count| is_leasable(&bucket, count)),
            [true, false]
        );
    }

    #[test]
    fn what_is_left_follows_from_any_end_where_spans_are_aligned() {
        let (aligned, boundary) = (limit(200, Algorithm::FIXED_WINDOW), now());
        let first = Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        };
        let millis = Duration::from_millis;
        let left = |limit: &Limit, at| Span::for_limit(limit).unwrap().left(boundary, at);
        assert_eq!(left(&aligned, boundary), Some(millis(200)));
        let later = boundary + millis(1_050);
        assert_eq!(left(&aligned, later), Some(millis(150)));
        assert_eq!(left(&limit(200, first), later), None);
        let before = boundary.checked_sub(millis(30)).unwrap();
        assert_eq!(left(&limit(200, first), before), Some(millis(30)));
    }
}
