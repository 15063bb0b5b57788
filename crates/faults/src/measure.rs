//! What the answers of a run amount to: admitted beyond the limit, degraded, how long they took, and when a fault was over.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::load::{LoadSeen, LoopStall, SeenAnswer};
use crate::rules::{CountedRule, CountedShape, FailureMode};

/// Answers are normal again when for this long hardly any is degraded or failed.
const CALM: Duration = Duration::from_millis(500);

/// When the fault was, since the start of the load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultSpan {
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
}

/// Whether an answer counts against the limit: with `allow`, those that were given without Redis do not.
fn is_counted(rule: CountedRule, answer: &SeenAnswer) -> bool {
    let admitted = answer.check.filter(|check| check.is_allowed);
    admitted.is_some_and(|check| !(check.is_degraded && rule.mode == FailureMode::Allow))
}

/// The most that one rule admitted beyond its limit.
pub(crate) fn most_over(rule: CountedRule, index: usize, seen: &LoadSeen) -> u32 {
    let answers = seen.answers.iter();
    let own = answers.filter(|answer| answer.rule == index && is_counted(rule, answer));
    match rule.shape {
        CountedShape::FixedWindow => {
            let most = windows(own).into_values().max().unwrap_or(0);
            most.saturating_sub(rule.limit())
        }
        CountedShape::TokenBucket => {
            let times = own.map(|answer| (answer.sent, answer.received));
            bucket_excess(times, rule.limit(), rule.per_second())
        }
    }
}

/// How many were admitted in each fixed window, by the end of the window.
pub(crate) fn windows<'a>(answers: impl Iterator<Item = &'a SeenAnswer>) -> BTreeMap<u64, u32> {
    let mut windows = BTreeMap::new();
    for answer in answers {
        if let Some(end) = answer.check.and_then(|check| check.reset_ms) {
            *windows.entry(end).or_default() += 1;
        }
    }
    windows
}

/// The least that a rule admitted in any whole window of a run: the first and the last one may be cut.
pub(crate) fn least_in_a_window(index: usize, seen: &LoadSeen) -> Option<u32> {
    let admitted = seen.answers.iter().filter(|answer| {
        answer.rule == index && answer.check.is_some_and(|check| check.is_allowed)
    });
    let counts: Vec<u32> = windows(admitted).into_values().collect();
    let whole = counts.get(1..counts.len().saturating_sub(1))?;
    whole.iter().min().copied()
}

/// The largest excess over `burst + rate × t` in any interval. A request was decided between `sent` and `received`, so an interval
/// is taken to last from the first `sent` to the last `received`: what is reported is never more than what happened.
fn bucket_excess(
    times: impl Iterator<Item = (Duration, Duration)>,
    burst: u32,
    per_second: u32,
) -> u32 {
    let rate = f64::from(per_second);
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    let mut before = 0.0;
    for (sent, received) in times {
        least = least.min(before - rate * sent.as_secs_f64());
        before += 1.0;
        most = most.max(before - rate * received.as_secs_f64() - least);
    }
    whole(most - f64::from(burst))
}

/// A number of requests, rounded down; nothing for less than one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is clamped, and no run has that many requests"
)]
fn whole(number: f64) -> u32 {
    number.clamp(0.0, f64::from(u32::MAX)) as u32
}

/// The share of the answers sent within a span that `is_so` holds for, from 0 to 1.
pub(crate) fn share(
    seen: &LoadSeen,
    span: FaultSpan,
    mut is_so: impl FnMut(&SeenAnswer) -> Option<bool>,
) -> f64 {
    let within = seen.answers.iter();
    let within = within.filter(|answer| (span.begin..=span.end).contains(&answer.sent));
    let (mut all, mut those) = (0_u32, 0_u32);
    for is_one in within.filter_map(&mut is_so) {
        all += 1;
        those += u32::from(is_one);
    }
    f64::from(those) / f64::from(all.max(1))
}

/// How long after the end of the fault answers are normal again; none if they are not before the end of the run.
pub(crate) fn recovery(seen: &LoadSeen, end: Duration) -> Option<Duration> {
    let is_bad = |answer: &SeenAnswer| answer.check.is_none_or(|check| check.is_degraded);
    let after: Vec<&SeenAnswer> = seen
        .answers
        .iter()
        .filter(|answer| answer.received >= end)
        .collect();
    let last = after.last()?.received;
    // Either at once, or after one of the bad answers.
    let bad = after.iter().filter(|answer| is_bad(answer));
    let candidates = std::iter::once(end).chain(bad.map(|answer| answer.received));
    let mut candidates = candidates.take_while(|from| *from + CALM <= last);
    let found = candidates.find(|from| {
        let span =
            |answer: &&&SeenAnswer| answer.received > *from && answer.received <= *from + CALM;
        let within: Vec<_> = after.iter().filter(span).collect();
        let bad = within.iter().filter(|answer| is_bad(answer)).count();
        !within.is_empty() && bad * 100 <= within.len()
    });
    found.map(|from| from.saturating_sub(end))
}

/// How long answers took, without the time in which the clients themselves did not run, shortest first.
pub(crate) fn latencies(
    seen: &LoadSeen,
    is_measured: impl Fn(&SeenAnswer) -> bool,
) -> Vec<Duration> {
    let measured = seen.answers.iter().filter(|answer| is_measured(answer));
    let took = measured.map(|answer| {
        let stalled = stalled_within(&seen.stalls, answer.sent, answer.received);
        let took = answer.received.saturating_sub(answer.sent);
        took.saturating_sub(stalled)
    });
    let mut all: Vec<Duration> = took.collect();
    all.sort_unstable();
    all
}

fn stalled_within(stalls: &[LoopStall], from: Duration, to: Duration) -> Duration {
    let first = stalls.partition_point(|stall| stall.to <= from);
    let within = stalls[first..].iter().take_while(|stall| stall.from < to);
    within
        .map(|stall| stall.to.min(to).saturating_sub(stall.from.max(from)))
        .sum()
}

/// The value that 99.9 % of the sorted values do not exceed.
pub(crate) fn percentile_999(sorted: &[Duration]) -> Duration {
    percentile(sorted, 999)
}

/// The value that so many of 1,000 of the sorted values do not exceed.
pub(crate) fn percentile(sorted: &[Duration], of_1000: usize) -> Duration {
    let index = (sorted.len() * of_1000).div_ceil(1_000).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::CheckAnswer;

    fn millis(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn answer(rule: usize, at: u64, reset: u64, is_degraded: bool) -> SeenAnswer {
        SeenAnswer {
            rule,
            server: 0,
            sent: millis(at),
            received: millis(at + 1),
            check: Some(CheckAnswer {
                is_allowed: true,
                is_degraded,
                reset_ms: Some(reset),
            }),
        }
    }

    fn seen(answers: Vec<SeenAnswer>) -> LoadSeen {
        LoadSeen {
            answers,
            ..LoadSeen::default()
        }
    }

    #[test]
    fn a_window_is_counted_by_its_end_and_without_what_allow_grants() {
        let rules = CountedRule::all();
        let mut answers: Vec<_> = (0..103).map(|at| answer(0, at, 2_000, false)).collect();
        answers.extend((0..50).map(|at| answer(0, 200 + at, 4_000, false)));
        answers.extend((0..500).map(|at| answer(0, 300 + at, 2_000, true)));
        assert_eq!(most_over(rules[0], 0, &seen(answers.clone())), 3);
        let local: Vec<_> = answers
            .iter()
            .map(|answer| SeenAnswer { rule: 2, ..*answer })
            .collect();
        assert_eq!(most_over(rules[2], 2, &seen(local)), 503);
        assert_eq!(most_over(rules[1], 1, &seen(answers)), 0);
    }

    #[test]
    fn the_excess_of_a_bucket_is_that_of_its_worst_interval() {
        // 50 at once, then one every 20 ms: the limit to the last.
        let steady = (0..50).map(|_| 0).chain((1..100).map(|number| number * 20));
        let times = |list: Vec<u64>| list.into_iter().map(|at| (millis(at), millis(at)));
        let steady: Vec<u64> = steady.collect();
        assert_eq!(bucket_excess(times(steady.clone()), 50, 50), 0);
        let mut twice = steady;
        twice.extend((0..50).map(|_| 1_980));
        assert_eq!(bucket_excess(times(twice), 50, 50), 50);
    }

    #[test]
    fn recovery_is_when_answers_stay_normal() {
        let mut answers: Vec<_> = (0..300)
            .map(|number| answer(0, number * 10, 0, (100..150).contains(&number)))
            .collect();
        let found = recovery(&seen(answers.clone()), millis(1_200));
        assert_eq!(found, Some(millis(291)), "the last bad one is at 1,491 ms");
        for answer in &mut answers[100..] {
            answer.check = None;
        }
        assert_eq!(recovery(&seen(answers), millis(1_200)), None);
    }

    #[test]
    fn a_stall_of_the_client_does_not_count() {
        let mut slow = answer(0, 100, 0, false);
        slow.received = millis(150);
        let mut all = seen(vec![slow]);
        all.stalls = [(20, 50), (90, 110), (120, 140)]
            .map(|(from, to)| LoopStall {
                from: millis(from),
                to: millis(to),
            })
            .to_vec();
        assert_eq!(latencies(&all, |_| true), [millis(20)]);
        let sorted: Vec<_> = (1..=2_000).map(millis).collect();
        assert_eq!(percentile_999(&sorted), millis(1_998));
        assert_eq!(percentile(&sorted, 950), millis(1_900));
    }
}
