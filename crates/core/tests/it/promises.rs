//! What every limit promises, on random limits and timelines of every algorithm.

use proptest::prelude::*;
use tidegate_core::algorithm::Form;
use tidegate_core::{Algorithm, Anchor, Limit, Micros, Rate, Retry, Timestamp, Window};
use tidegate_testkit::timeline::{OneKey, START, any_limit, any_limit_with_steps};

/// A request that was let through: when it goes on, and how much it took.
#[derive(Debug, Clone, Copy)]
struct Admitted {
    at: Timestamp,
    cost: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// The promise that users buy, over every interval and not only from the start.
    #[test]
    fn no_interval_ever_admits_more_than_promised((limit, steps) in any_limit_with_steps()) {
        let mut key = OneKey::new(&limit);
        let mut now = START;
        let mut admitted: Vec<Admitted> = Vec::new();
        for step in steps {
            now = now + step.pause;
            let outcome = key.charge(step.cost, now);
            if outcome.allowed && step.cost > 0 {
                admitted.push(Admitted { at: now + outcome.delay, cost: step.cost });
                check_promise(&limit, &admitted)?;
            }
        }
    }

    /// What is said of a limit everywhere: the most in any interval of a window, and at one instant.
    #[test]
    fn no_algorithm_exceeds_its_worst_case((limit, steps) in any_limit_with_steps()) {
        let admitted = of_cost_one(&limit, steps.iter().flat_map(|step| {
            // The same pauses, with as many requests as one took.
            let more = usize::try_from(step.cost.min(8)).unwrap_or(0);
            std::iter::once(step.pause).chain(std::iter::repeat_n(Micros::ZERO, more))
        }));
        // A delay is rounded up to a microsecond, so that of a faster rate several end at the same time.
        let can_delay = match limit.algorithm() {
            Algorithm::LeakyBucket { shape } => shape,
            Algorithm::TokenBucket { max_delay } => !max_delay.is_zero(),
            _ => false,
        };
        let is_faster = limit.window().is_some_and(|window| limit.rate().count > window.longest().get());
        prop_assume!(!(can_delay && is_faster));
        let worst = limit.worst_case();
        prop_assert!(most_within(&admitted, Micros::new(1)) <= worst.instant);
        if let (Some(most), Some(Window::Span(window))) = (worst.window, limit.window()) {
            prop_assert!(most_within(&admitted, window) <= most);
        }
    }

    /// Allowed exactly then, and denied one microsecond before.
    #[test]
    fn retry_after_is_tight((limit, steps) in any_limit_with_steps()) {
        let mut key = OneKey::new(&limit);
        let mut now = START;
        for step in steps {
            now = now + step.pause;
            let outcome = key.charge(step.cost, now);
            match outcome.retry {
                Retry::Now => prop_assert!(outcome.allowed),
                Retry::Never => {
                    prop_assert!(step.cost > limit.capacity());
                    prop_assert!(!key.peek(step.cost, now + key.memory().times(3)).allowed);
                }
                Retry::After(wait) => {
                    prop_assert!(!outcome.allowed && wait > Micros::ZERO);
                    prop_assert!(key.peek(step.cost, now + wait).allowed);
                    prop_assert!(!key.peek(step.cost, now + wait - Micros::new(1)).allowed);
                }
            }
        }
    }

    /// One more than what remains is denied, or has to wait.
    #[test]
    fn remaining_is_the_largest_cost_allowed((limit, steps) in any_limit_with_steps()) {
        let is_shaped = matches!(limit.algorithm(), Algorithm::LeakyBucket { shape: true });
        let mut key = OneKey::new(&limit);
        let mut now = START;
        for step in steps {
            now = now + step.pause;
            let outcome = key.charge(step.cost, now);
            prop_assert_eq!(outcome.limit, limit.capacity());
            let fits = key.peek(outcome.remaining, now);
            prop_assert!(fits.allowed && (is_shaped || fits.delay.is_zero()));
            prop_assert_eq!(fits.remaining, outcome.remaining);
            let more = key.peek(outcome.remaining + 1, now);
            prop_assert!(!more.allowed || more.delay > Micros::ZERO);
        }
    }

    /// Whole at that instant, and not before.
    #[test]
    fn reset_time_is_when_it_is_whole_again((limit, steps) in any_limit_with_steps()) {
        let mut key = OneKey::new(&limit);
        let mut now = START;
        for step in steps {
            now = now + step.pause;
            let reset_at = key.charge(step.cost, now).reset_at;
            prop_assert!(reset_at >= now);
            prop_assert_eq!(key.peek(0, reset_at).remaining, limit.capacity());
            if reset_at > now {
                prop_assert!(key.peek(0, reset_at - Micros::new(1)).remaining < limit.capacity());
            } else {
                prop_assert_eq!(key.peek(0, now).remaining, limit.capacity());
            }
        }
    }

    #[test]
    fn a_denied_request_changes_nothing(
        (limit, steps) in any_limit_with_steps(), later in 0..5_000_000_u64,
    ) {
        let mut key = OneKey::new(&limit);
        let mut now = START;
        for step in steps {
            now = now + step.pause;
            let before = (key.peek(1, now), key.peek(1, now + Micros::new(later)));
            if !key.charge(step.cost, now).allowed {
                let after = (key.peek(1, now), key.peek(1, now + Micros::new(later)));
                prop_assert_eq!(before, after);
            }
        }
    }

    /// A request that comes with an earlier time finds no more than there was.
    #[test]
    fn time_going_backwards_gives_nothing(
        (limit, steps) in any_limit_with_steps(), back in 0..10_000_000_000_u64,
    ) {
        let mut key = OneKey::new(&limit);
        let mut now = START;
        for step in steps {
            now = now + step.pause;
            let outcome = key.charge(step.cost, now);
            if outcome.allowed && step.cost > 0 {
                let earlier = key.peek(1, now - Micros::new(back));
                prop_assert!(earlier.remaining <= outcome.remaining);
            }
        }
    }

    /// However far a clock was ahead, a key is idle soon after it was set back.
    #[test]
    fn a_clock_set_back_freezes_nothing(
        (limit, steps) in any_limit_with_steps(), ahead in 0..4_000_000_000_000_000_u64,
    ) {
        let mut key = OneKey::new(&limit);
        let mut wrong = START + Micros::new(ahead);
        for step in steps {
            wrong = wrong + step.pause;
            key.charge(step.cost, wrong);
        }
        let used = limit.capacity() - key.peek(0, wrong).remaining;
        // The first request after the clock was set back finds what was used still used ...
        let first = key.charge(1, START);
        if ahead > 0 {
            let took = first.allowed && first.delay.is_zero();
            let left = first.remaining + u64::from(took);
            prop_assert!(left <= limit.capacity() - used, "{left} left of {}, {used} used", limit.capacity());
        }
        // ... and all of it is back after the time that the limit remembers, twice at the most: once
        // for a state that is not far enough in the future to be doubted, once to forget it.
        let owed_early = match limit.algorithm() {
            Algorithm::TokenBucket { max_delay } => max_delay,
            _ => Micros::ZERO,
        };
        let later = START + key.memory().times(2) + owed_early;
        prop_assert_eq!(key.peek(0, later).remaining, limit.capacity());
        prop_assert!(key.charge(1, later).allowed);
    }

    /// Giving back at once undoes a charge; giving back later never leaves more than if it had not
    /// been.
    #[test]
    fn give_back_never_returns_more_than_was_taken(
        (limit, steps) in any_limit_with_steps(), cost in 1..5_u64, later in 0..5_000_000_u64,
    ) {
        let (mut with, mut without) = (OneKey::new(&limit), OneKey::new(&limit));
        let mut now = START;
        for step in steps {
            now = now + step.pause;
            with.charge(step.cost, now);
            without.charge(step.cost, now);
        }
        let untouched = with.peek(0, now);
        let charged = with.charge(cost, now);
        if charged.allowed {
            with.give_back(cost, charged, now);
            prop_assert_eq!(with.peek(0, now).remaining, untouched.remaining);

            let charged = with.charge(cost, now);
            let then = now + Micros::new(later);
            let kept = with.peek(0, then).remaining;
            with.give_back(cost, charged, then);
            let given = with.peek(0, then).remaining;
            prop_assert!(kept <= given && given <= without.peek(0, then).remaining);
        }
    }

    /// Settling takes what there is and no more, and never asks.
    #[test]
    fn settling_takes_up_to_a_full_quota((limit, steps) in any_limit_with_steps(), cost: u64) {
        if matches!(limit.algorithm(), Algorithm::Concurrency { .. }) {
            return Ok(()); // it has nothing to settle
        }
        let mut key = OneKey::new(&limit);
        let mut now = START;
        for step in steps {
            now = now + step.pause;
            key.charge(step.cost, now);
        }
        let before = key.peek(0, now);
        let cost = cost % limit.capacity().saturating_mul(2);
        let settled = key.settle(cost, now);
        prop_assert_eq!(settled.allowed, before.remaining >= cost);
        prop_assert!(settled.delay.is_zero());
        prop_assert_eq!(settled.remaining, before.remaining.saturating_sub(cost));
        prop_assert_eq!(key.peek(0, now).remaining, settled.remaining);
        let restored = key.peek(0, now + key.memory().times(2) + Micros::SECOND.times(3));
        prop_assert_eq!(restored.remaining, limit.capacity());
    }

    /// What was used under one limit is used under another with the same window.
    #[test]
    fn a_changed_limit_keeps_what_was_used(limit in any_limit(), used in 1..20_u64, count in 1..40_u64) {
        let mut key = OneKey::new(&limit);
        let used = used.min(limit.capacity());
        prop_assert!(key.charge(used, START).allowed);
        let mut rate = limit.rate();
        rate.count = count;
        rate.burst = rate.burst.map(|_| count);
        if let Ok(changed) = Limit::new(rate, limit.algorithm()) {
            prop_assert_eq!(changed.shape(), limit.shape());
            key.limit = changed;
            prop_assert_eq!(key.peek(0, START).remaining, count.saturating_sub(used));
        }
    }

    /// Any numbers at all: no panic, no wrap-around, and still never over the limit.
    #[test]
    fn nothing_that_a_client_sends_breaks_it(
        limit in any_limit(), steps in prop::collection::vec((any::<u64>(), any::<u64>(), 0..64_u32), 1..40),
    ) {
        let mut key = OneKey::new(&limit);
        for (time, cost, shift) in steps {
            let now = Timestamp::from_micros(time);
            let cost = cost >> shift;
            let outcome = key.charge(cost, now);
            prop_assert!(outcome.remaining <= limit.capacity());
            prop_assert!(!outcome.allowed || cost <= limit.capacity());
            key.settle(cost, now);
            key.give_back(cost, outcome, now);
        }
    }
}

/// If there are requests at every instant of a window.
#[test]
fn buckets_and_logs_reach_their_worst_case() {
    let patient = Algorithm::TokenBucket {
        max_delay: Micros::new(700),
    };
    let meter = Algorithm::LeakyBucket { shape: false };
    let algorithms = [
        Algorithm::TOKEN_BUCKET,
        patient,
        meter,
        Algorithm::LEAKY_BUCKET,
        Algorithm::SlidingWindowLog,
    ];
    for algorithm in algorithms {
        for (count, burst, window) in [(1, 1, 1_000), (3, 3, 1_000), (7, 2, 1_009), (30, 50, 1_013)]
        {
            let mut rate = Rate::new(count, Micros::new(window));
            rate.burst = algorithm.is_bucket().then_some(burst);
            let limit = Limit::new(rate, algorithm).unwrap();
            let first = (0..60).map(|_| Micros::ZERO);
            let admitted = of_cost_one(&limit, first.chain((1..window).map(|_| Micros::new(1))));
            let reached = (
                Some(most_within(&admitted, Micros::new(window))),
                most_within(&admitted, Micros::new(1)),
            );
            let worst = limit.worst_case();
            assert_eq!(
                reached,
                (worst.window, worst.instant),
                "{limit} {algorithm:?}"
            );
        }
    }
}

/// When requests of cost 1 go on that come with these pauses between them, in order.
fn of_cost_one(limit: &Limit, pauses: impl IntoIterator<Item = Micros>) -> Vec<Timestamp> {
    let mut key = OneKey::new(limit);
    let mut now = START;
    let mut admitted = Vec::new();
    for pause in pauses {
        now = now + pause;
        let outcome = key.charge(1, now);
        if outcome.allowed {
            admitted.push(now + outcome.delay);
        }
    }
    admitted.sort_unstable();
    admitted
}

/// The most of these that are in any half-open interval of this length.
fn most_within(times: &[Timestamp], length: Micros) -> u64 {
    let (mut first, mut most) = (0, 0);
    for (index, at) in times.iter().enumerate() {
        while at.since(times[first]) >= length {
            first += 1;
        }
        most = most.max(index + 1 - first);
    }
    most as u64
}

/// The promise of each algorithm about what it admitted, looked at from the latest admission.
fn check_promise(limit: &Limit, admitted: &[Admitted]) -> Result<(), TestCaseError> {
    let Some(last) = admitted.last() else {
        return Ok(());
    };
    let total = |from: Timestamp, to: Timestamp| -> u64 {
        let within = admitted.iter().filter(|one| from <= one.at && one.at < to);
        within.map(|one| one.cost).sum()
    };
    let end = last.at + Micros::new(1);
    match limit.form() {
        Form::Bucket(bucket) => {
            let rate = limit.rate();
            let is_shaped = matches!(limit.algorithm(), Algorithm::LeakyBucket { shape: true });
            let can_delay = is_shaped || limit.algorithm() != Algorithm::TOKEN_BUCKET;
            let mut taken = 0;
            for one in admitted.iter().rev() {
                taken += u128::from(one.cost);
                // A delay is rounded up to a microsecond, which can bring the next request that much
                // closer.
                let slack = u64::from(can_delay);
                let span = last.at.since(one.at).get() + slack;
                let flowed = u128::from(span) * u128::from(rate.count);
                let granted = u128::from(bucket.burst()) * u128::from(bucket.window().get());
                prop_assert!(taken * u128::from(bucket.window().get()) <= granted + flowed);
            }
            if let (true, [.., before, last]) = (is_shaped, admitted) {
                let gap = u128::from(last.at.since(before.at).get() + 1) * u128::from(rate.count);
                let level = u128::from(before.cost) * u128::from(bucket.window().get());
                prop_assert!(gap >= level, "not evenly spaced");
            }
        }
        Form::FixedWindow(fixed) if fixed.anchor() == Anchor::Clock => {
            let (start, end) = fixed.window().around(last.at);
            prop_assert!(total(start, end) <= limit.capacity());
        }
        Form::FixedWindow(fixed) => {
            // Windows open at a request: walk through them from the first.
            let mut opened_at = admitted[0].at;
            for one in admitted {
                let is_past = one.at >= opened_at + fixed.window().longest();
                opened_at = if is_past { one.at } else { opened_at };
            }
            prop_assert!(total(opened_at, end) <= limit.capacity());
        }
        Form::SlidingLog(log) => {
            prop_assert!(total(end - log.window(), end) <= limit.capacity());
        }
        Form::SlidingSlots(slots) => {
            let Algorithm::SlidingWindowSlots { strict, .. } = limit.algorithm() else {
                return Err(TestCaseError::fail("slots of another algorithm"));
            };
            if strict {
                let window = slots.slot().times(slots.counted() - 1);
                prop_assert!(total(end - window, end) <= limit.capacity());
            }
            let slot = last.at.as_micros() / slots.slot().get();
            let first = (slot + 1).saturating_sub(slots.counted()) * slots.slot().get();
            prop_assert!(total(Timestamp::from_micros(first), end) <= limit.capacity());
        }
        Form::SlidingCounter(counter) => {
            let window = u128::from(counter.window().get());
            let (start, next) = Window::Span(counter.window()).around(last.at);
            let current = u128::from(total(start, next));
            let previous = u128::from(total(start - counter.window(), start));
            let left = window - u128::from(last.at.since(start).get());
            prop_assert!(current + previous * left / window <= u128::from(limit.capacity()));
        }
        Form::Concurrency(concurrency) => {
            // No permit is released here: each lasts its whole time.
            let started = end - concurrency.lease_ttl();
            prop_assert!(total(started, end) <= limit.capacity());
        }
    }
    Ok(())
}
