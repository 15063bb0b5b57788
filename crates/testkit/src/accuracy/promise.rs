//! What an algorithm promises about all that it admitted for one key, checked over every interval.

use std::collections::{BTreeMap, VecDeque};

use tidegate_core::algorithm::Form;
use tidegate_core::{Algorithm, Anchor, Limit, Micros, Timestamp, Window};

/// A request that was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmittedArrival {
    /// When it was decided.
    pub at: Timestamp,
    /// When it goes on: later if it was given a delay.
    pub goes_on_at: Timestamp,
}

/// The most that went on in any half-open interval of this length.
pub fn most_in_any_window(admitted: &[AdmittedArrival], window: Micros) -> u64 {
    let mut times: Vec<Timestamp> = admitted.iter().map(|one| one.goes_on_at).collect();
    times.sort_unstable();
    let (mut inside, mut most) = (VecDeque::new(), 0);
    for at in times {
        inside.push_back(at);
        while inside
            .front()
            .is_some_and(|first| at.since(*first) >= window)
        {
            inside.pop_front();
        }
        most = most.max(inside.len());
    }
    most as u64
}

/// By how many requests the promise of the limit was exceeded, at the worst. Each request takes one; they are in the
/// order in which they were decided.
pub fn over_promise(limit: &Limit, admitted: &[AdmittedArrival]) -> u64 {
    let most = |count: u64| count.saturating_sub(limit.capacity());
    match limit.form() {
        Form::Bucket(_) => over_bucket(limit, admitted),
        Form::FixedWindow(fixed) if fixed.anchor() == Anchor::Clock => {
            most(most_in_aligned(admitted, fixed.window().longest(), 1))
        }
        Form::FixedWindow(fixed) => most(most_in_opened(admitted, fixed.window().longest())),
        Form::SlidingLog(log) => most(most_in_any_window(admitted, log.window())),
        Form::SlidingCounter(counter) => over_counter(limit, admitted, counter.window()),
        Form::SlidingSlots(slots) => {
            let aligned = most(most_in_aligned(admitted, slots.slot(), slots.counted()));
            let is_strict = matches!(
                limit.algorithm(),
                Algorithm::SlidingWindowSlots { strict: true, .. }
            );
            let any = most(most_in_any_window(admitted, slots.window()));
            aligned.max(if is_strict { any } else { 0 })
        }
        // Over time it promises nothing: permits are released.
        Form::Concurrency(_) => 0,
    }
}

/// The most in so many successive parts of this length, aligned with the clock.
fn most_in_aligned(admitted: &[AdmittedArrival], length: Micros, parts: u64) -> u64 {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for one in admitted {
        *counts.entry(one.at.as_micros() / length.get()).or_default() += 1;
    }
    let sums = counts.keys().map(|first| {
        let range = counts.range(first..&(first + parts));
        range.map(|(_, count)| count).sum::<u64>()
    });
    sums.max().unwrap_or(0)
}

/// The most in a window that opens at the first request that finds none open.
fn most_in_opened(admitted: &[AdmittedArrival], window: Micros) -> u64 {
    let (mut opened_at, mut count, mut most) = (Timestamp::EPOCH, 0, 0);
    for one in admitted {
        if count == 0 || one.at >= opened_at + window {
            (opened_at, count) = (one.at, 0);
        }
        count += 1;
        most = most.max(count);
    }
    most
}

/// The sum of the definition, at each request that was admitted.
fn over_counter(limit: &Limit, admitted: &[AdmittedArrival], window: Micros) -> u64 {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut most = 0;
    for one in admitted {
        let number = one.at.as_micros() / window.get();
        let current = counts.entry(number).or_default();
        *current += 1;
        let current = *current;
        let previous = counts.get(&(number - 1)).copied().unwrap_or(0);
        let left = window.get() - one.at.as_micros() % window.get();
        let faded = u128::from(previous) * u128::from(left) / u128::from(window.get());
        most = most.max(current + u64::try_from(faded).unwrap_or(u64::MAX));
    }
    most.saturating_sub(limit.capacity())
}

/// What is in a bucket above its burst after a request, if `count` leak of it per window; and for one that gives
/// requests a delay, above one request, as these go on one by one.
fn over_bucket(limit: &Limit, admitted: &[AdmittedArrival]) -> u64 {
    let Form::Bucket(bucket) = limit.form() else {
        return 0;
    };
    let is_shaped = matches!(limit.algorithm(), Algorithm::LeakyBucket { shape: true });
    let decided = over_level(admitted.iter().map(|one| one.at), limit, bucket.burst());
    if !is_shaped {
        return decided;
    }
    let went_on = admitted.iter().map(|one| one.goes_on_at);
    decided.max(over_level(went_on, limit, 1))
}

fn over_level(times: impl Iterator<Item = Timestamp>, limit: &Limit, capacity: u64) -> u64 {
    let rate = limit.rate();
    let window = rate.window.map_or(Micros::SECOND, Window::longest);
    let (window, count) = (u128::from(window.get()), u128::from(rate.count));
    // A delay is rounded up to a microsecond, which can bring the next request that much closer.
    let slack = if limit.algorithm() == Algorithm::TOKEN_BUCKET {
        0
    } else {
        count
    };
    let full = u128::from(capacity) * window + slack;
    let (mut level, mut last, mut most) = (0_u128, Timestamp::EPOCH, 0_u128);
    for at in times {
        let leaked = u128::from(at.since(last).get()) * count;
        level = level.saturating_sub(leaked) + window;
        most = most.max(level);
        last = last.max(at);
    }
    u64::try_from(most.saturating_sub(full).div_ceil(window)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::{all_algorithms, title};
    use super::*;
    use crate::timeline::START;
    use tidegate_core::Rate;

    fn at(millis: u64) -> AdmittedArrival {
        let at = START + Micros::from_millis(millis);
        AdmittedArrival { at, goes_on_at: at }
    }

    #[test]
    fn one_more_than_promised_is_found_for_every_algorithm() {
        for algorithm in all_algorithms() {
            let limit = Limit::new(Rate::per_second(10), algorithm).unwrap();
            let spaced = matches!(algorithm, Algorithm::LeakyBucket { shape: true });
            let pause = if spaced { 100 } else { 0 };
            let mut admitted: Vec<_> = (0..10).map(|number| at(number * pause)).collect();
            assert_eq!(over_promise(&limit, &admitted), 0, "{}", title(algorithm));
            admitted.push(at(9 * pause));
            assert_eq!(over_promise(&limit, &admitted), 1, "{}", title(algorithm));
        }
    }

    #[test]
    fn a_window_is_half_open() {
        let admitted = [at(0), at(0), at(999), at(1_000)];
        assert_eq!(most_in_any_window(&admitted, Micros::SECOND), 3);
    }
}
