//! Limits and rules that never decide anything, because another one denies whatever they would deny.
//!
//! What is reported here is certain. A limit is compared with another by the most that the other admits, so some
//! pairs that are pointless are not found.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::{Algorithm, Anchor, Limit, Micros, Window};

use super::grant::Grant;
use super::rule::Rule;
use crate::internal::document::{Place, Problems, Spot};

/// The first of these limits that can never deny a request, and the one that it leaves nothing to.
pub(super) fn pointless(limits: &[Limit]) -> Option<(&Limit, &Limit)> {
    let other = |(index, limit): (usize, &_)| {
        let mut others = limits
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index);
        others
            .find(|(_, other)| covers(other, limit))
            .map(|(other, _)| other)
    };
    let (index, limit) = limits
        .iter()
        .enumerate()
        .find(|row| other(*row).is_some())?;
    Some((limit, &limits[other((index, limit))?]))
}

/// Whether `limit` allows every request that `strict` allows, if both are charged for the same requests.
fn covers(strict: &Limit, limit: &Limit) -> bool {
    let (Some(strict), Some(limit)) = (Admits::of(strict), Admits::of(limit)) else {
        return false;
    };
    match limit.counts {
        // Every interval of length x may have `capacity` + rate × x.
        CountingKind::Bucket => {
            let (instant, count) = strict.line();
            let rates_fit = u128::from(count) * u128::from(limit.longest)
                <= u128::from(limit.count) * u128::from(strict.shortest);
            instant <= limit.capacity && rates_fit
        }
        CountingKind::Clock if limit.is_whole_in(&strict) => strict.count <= limit.count,
        CountingKind::Clock if strict.is_whole_in(&limit) => {
            let windows = limit.longest / strict.shortest;
            strict.count.saturating_mul(windows) <= limit.count
        }
        CountingKind::Clock | CountingKind::Exactly | CountingKind::Anchored => {
            strict.most_in(limit.longest) <= limit.count
        }
        // It may count what is up to a window older.
        CountingKind::Roughly => strict.most_in(limit.longest.saturating_mul(2)) <= limit.count,
    }
}

/// How a limit counts, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountingKind {
    Bucket,
    /// In windows of the clock.
    Clock,
    /// In windows that begin with a request.
    Anchored,
    /// No interval as long as the window has more than the limit.
    Exactly,
    /// No interval as long as the window has more than twice the limit.
    Roughly,
}

/// What a limit admits.
struct Admits {
    counts: CountingKind,
    count: u64,
    capacity: u64,
    window: Window,
    /// The bounds of the length of its window, in microseconds.
    shortest: u64,
    longest: u64,
}

impl Admits {
    /// `None` for limits that delay requests, and for concurrency.
    fn of(limit: &Limit) -> Option<Self> {
        let counts = match limit.algorithm() {
            Algorithm::TokenBucket {
                max_delay: Micros::ZERO,
            }
            | Algorithm::LeakyBucket { shape: false } => CountingKind::Bucket,
            Algorithm::FixedWindow {
                anchor: Anchor::Clock,
            } => CountingKind::Clock,
            Algorithm::FixedWindow {
                anchor: Anchor::FirstRequest,
            } => CountingKind::Anchored,
            Algorithm::SlidingWindowLog => CountingKind::Exactly,
            Algorithm::SlidingWindowCounter | Algorithm::SlidingWindowSlots { .. } => {
                CountingKind::Roughly
            }
            _ => return None,
        };
        let window = limit.rate().window?;
        let shortest = match window {
            Window::Span(span) => span,
            Window::Month => Micros::DAY.times(28),
            Window::Year => Micros::DAY.times(365),
        };
        Some(Self {
            counts,
            count: limit.rate().count,
            capacity: limit.capacity(),
            window,
            shortest: shortest.get(),
            longest: window.longest().get(),
        })
    }

    /// The most that it admits in any half-open interval of this many microseconds.
    fn most_in(&self, interval: u64) -> u64 {
        let windows = interval.div_ceil(self.shortest);
        match self.counts {
            CountingKind::Bucket => {
                let refilled = u128::from(self.count) * u128::from(interval.saturating_sub(1))
                    / u128::from(self.shortest);
                let refilled = u64::try_from(refilled).unwrap_or(u64::MAX);
                self.capacity.saturating_add(refilled)
            }
            CountingKind::Clock | CountingKind::Anchored => self.count.saturating_mul(windows + 1),
            CountingKind::Exactly => self.count.saturating_mul(windows),
            CountingKind::Roughly => self.count.saturating_mul(2).saturating_mul(windows),
        }
    }

    /// The line under which it stays: the most at one instant, and the count by which that grows with each window.
    fn line(&self) -> (u64, u64) {
        match self.counts {
            CountingKind::Bucket => (self.capacity, self.count),
            CountingKind::Clock | CountingKind::Anchored => (self.count * 2, self.count),
            CountingKind::Exactly => (self.count, self.count),
            CountingKind::Roughly => (self.count * 2, self.count * 2),
        }
    }

    /// Whether each window of the other consists of whole windows of this one. Both are windows of the clock.
    fn is_whole_in(&self, other: &Self) -> bool {
        if self.counts != CountingKind::Clock || other.counts != CountingKind::Clock {
            return false;
        }
        match (self.window, other.window) {
            (own, others) if own == others => true,
            (Window::Month, Window::Year) => true,
            (Window::Span(Micros::WEEK) | Window::Month | Window::Year, _) => false,
            // Months, years and weeks begin with a day.
            (Window::Span(span), Window::Month | Window::Year | Window::Span(Micros::WEEK)) => {
                Micros::DAY.get().is_multiple_of(span.get())
            }
            (Window::Span(span), Window::Span(others)) => others.get().is_multiple_of(span.get()),
        }
    }
}

/// Warns of rules that are like an earlier one in everything but name and text.
pub(super) fn warn_of_alike<'p>(
    rules: &[Arc<Rule>],
    place: impl Fn(usize) -> &'p Place,
    problems: &mut Problems,
) {
    for (index, earlier) in alike(rules) {
        let spot = Spot::rule_with_id(rules[index].id());
        let message = format!(
            "this rule is like `{}`: for the same requests it counts the same with the same limits, so it decides nothing more; remove one of them",
            earlier.id()
        );
        problems.warning(place(index), &spot, message);
    }
}

/// These rules by index, each with the earlier one.
fn alike(rules: &[Arc<Rule>]) -> Vec<(usize, &Rule)> {
    // Few rules have the same limits by the same key, and only these are written out to be compared.
    let mut similar: HashMap<(String, &[String]), Vec<usize>> = HashMap::new();
    for (index, rule) in rules.iter().enumerate() {
        let limit = rule.grants.first().map(Grant::text);
        let likes = similar.entry((limit.unwrap_or_default(), &rule.per));
        likes.or_default().push(index);
    }
    let mut found = Vec::new();
    for indexes in similar.into_values().filter(|indexes| indexes.len() > 1) {
        let mut first: HashMap<String, usize> = HashMap::new();
        for index in indexes {
            let mut written = rules[index].to_json();
            if let Some(map) = written.as_object_mut() {
                map.retain(|key, _| !["id", "description", "denied"].contains(&key.as_str()));
            }
            let earlier = *first.entry(written.to_string()).or_insert(index);
            if earlier != index {
                found.push((index, rules[earlier].as_ref()));
            }
        }
    }
    found.sort_by_key(|(index, _)| *index);
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::{Clock as _, ManualClock, Timestamp};

    use super::*;
    use crate::Limiter;

    const FIXED: Algorithm = Algorithm::FIXED_WINDOW;
    const FIRST: Algorithm = Algorithm::FixedWindow {
        anchor: Anchor::FirstRequest,
    };
    const BUCKET: Algorithm = Algorithm::TOKEN_BUCKET;
    const LOG: Algorithm = Algorithm::SlidingWindowLog;
    const COUNTER: Algorithm = Algorithm::SlidingWindowCounter;

    fn limit(text: &str, algorithm: Algorithm) -> Limit {
        Limit::new(text.parse().unwrap(), algorithm).unwrap()
    }

    #[test]
    fn pointless_limits_by_hand() {
        #[rustfmt::skip]
        let table = [
            // the strict one                   the other                               it is pointless
            (("50/minute", BUCKET),             ("100/second", BUCKET),                 true),
            (("100/second", BUCKET),            ("50/minute", BUCKET),                  false),
            (("10/minute", BUCKET),             ("600/hour", BUCKET),                   true),
            (("10/minute", BUCKET),             ("599/hour", BUCKET),                   false),
            (("60/minute burst 10", BUCKET),    ("1/second burst 9", BUCKET),           false),
            (("60/minute burst 10", BUCKET),    ("1/second burst 10", BUCKET),          true),
            (("10/hour", BUCKET),               ("249/day", FIXED),                     true),
            (("10/hour", BUCKET),               ("248/day", FIXED),                     false),
            (("10/hour", LOG),                  ("240/day", FIXED),                     true),
            (("10/hour", LOG),                  ("239/day", FIXED),                     false),
            (("10/hour", FIXED),                ("240/day", FIXED),                     true),
            (("10/hour", FIXED),                ("239/day", FIXED),                     false),
            (("10/hour", FIXED),                ("249/day", FIRST),                     false),
            (("10/hour", FIXED),                ("250/day", FIRST),                     true),
            (("10/day", FIXED),                 ("310/month", FIXED),                   true),
            (("10/day", FIXED),                 ("309/month", FIXED),                   false),
            (("1000/month", FIXED),             ("1000/day", FIXED),                    true),
            (("1000/month", FIXED),             ("999/day", FIXED),                     false),
            (("1000/month", FIXED),             ("1000/week", FIXED),                   false),
            (("1000/month", FIXED),             ("2000/week", FIXED),                   true),
            (("10/week", FIXED),                ("50/month", FIXED),                    false),
            (("10/week", FIXED),                ("60/month", FIXED),                    true),
            (("100/minute", FIXED),             ("199/second", BUCKET),                 false),
            (("100/minute", FIXED),             ("200/second", BUCKET),                 true),
            (("10/hour", COUNTER),              ("479/day", LOG),                       false),
            (("10/hour", COUNTER),              ("480/day", LOG),                       true),
            (("10/minute", Algorithm::LEAKY_BUCKET), ("600/hour", BUCKET),              false),
            (("10", Algorithm::CONCURRENCY),    ("600/hour", BUCKET),                   false),
        ];
        for (strict, other, expected) in table {
            let limits = [limit(strict.0, strict.1), limit(other.0, other.1)];
            assert_eq!(
                covers(&limits[0], &limits[1]),
                expected,
                "{strict:?} {other:?}"
            );
            assert!(
                !expected || pointless(&limits).is_some(),
                "{strict:?} {other:?}"
            );
        }
        assert!(pointless(&[limit("10/second", BUCKET), limit("1000/day", FIXED)]).is_none());
    }

    fn any_limit() -> impl Strategy<Value = Limit> {
        let slots = |strict| Algorithm::SlidingWindowSlots {
            slots: Some(5),
            strict,
        };
        let leaky = Algorithm::LeakyBucket { shape: false };
        let algorithms = vec![
            BUCKET,
            leaky,
            FIXED,
            FIRST,
            LOG,
            COUNTER,
            slots(false),
            slots(true),
        ];
        let windows = prop::sample::select(vec![1_u64, 2, 3, 4, 6, 10, 12]);
        (
            prop::sample::select(algorithms),
            1_u64..40,
            windows,
            1_u64..12,
        )
            .prop_map(|(algorithm, count, seconds, burst)| {
                let rate = tidegate_core::Rate::new(count, Micros::from_seconds(seconds));
                let rate = if algorithm.is_bucket() {
                    rate.burst(burst)
                } else {
                    rate
                };
                Limit::new(rate, algorithm).unwrap()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn a_limit_that_is_reported_never_denies(
            strict in any_limit(),
            other in any_limit(),
            requests in prop::collection::vec((0_u64..2_000_000, 1_u64..4), 1..200),
        ) {
            if !covers(&strict, &other) {
                return Ok(());
            }
            let clock = ManualClock::new(Timestamp::from_seconds(1_000));
            let limiter = |limit: &Limit| {
                let builder = Limiter::builder_for(vec![limit.clone()]);
                builder.clock(clock.clone()).build().unwrap()
            };
            let (first, second) = (limiter(&strict), limiter(&other));
            for (wait, cost) in requests {
                // Most requests come in bursts.
                let wait = if wait % 3 == 0 { wait } else { wait / 100_000 };
                clock.set(clock.now() + Micros::new(wait));
                if first.check_cost("k", cost).is_allowed() {
                    let decision = second.check_cost("k", cost);
                    prop_assert!(decision.is_allowed(), "{strict:?} {other:?} {decision:?}");
                }
            }
        }
    }
}
