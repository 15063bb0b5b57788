//! Remembers outcomes that Redis returned: denials that still hold, and usage.
//!
//! All of it may be dropped at any time: a remembered denial saves a call, and the usage seeds the local
//! counters when Redis is unreachable.

use std::collections::HashMap;
use std::time::Duration;

use crate::monotonic::now;
use parking_lot::Mutex;
use tidegate_core::algorithm::Form;
use tidegate_core::{Limit, Micros, Outcome, Retry, Timestamp};
use tidegate_redis_wire::keys::StateName;
use tidegate_redis_wire::wire::admitted;
use tokio::time::Instant;

/// How long a denial is remembered at the most.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);
/// The same where a charge that is given back a moment later may have caused it.
pub(crate) const LONGEST_ACROSS_SLOTS: Duration = Duration::from_millis(20);
/// How many states each shard remembers before the older half is dropped.
const YOUNG: usize = 4_096;
const PARTS: usize = 16;

/// Remembered outcomes by state. Bounded: the states that were updated longest ago are dropped first.
pub(crate) struct Hints {
    parts: [Mutex<HintShard>; PARTS],
}

#[derive(Default)]
struct HintShard {
    young: HashMap<StateName, Hint, foldhash::fast::RandomState>,
    old: HashMap<StateName, Hint, foldhash::fast::RandomState>,
}

#[derive(Debug, Clone, Copy)]
struct Hint {
    times: Instant,
    outcome: Outcome,
    /// Whether usage flows back continuously, and not at the end of a window.
    flows: bool,
    denial: Option<Denial>,
    /// When it was last forgotten: outcomes of calls sent before that are ignored.
    forgotten_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Denial {
    /// The numbers of the limit that denied.
    form: Form,
    cost: u64,
    counts_from: Instant,
    until: Instant,
    outcome: Outcome,
}

/// When Redis was asked, and for how long its denial holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerTimes {
    pub(crate) sent_at: Instant,
    /// From when on the wait of a denial counts: the question was sent then, or the answer came.
    pub(crate) counts_from: Instant,
    /// For how long a denial is remembered at most.
    pub(crate) longest: Duration,
}

impl Hints {
    pub(crate) fn new() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// The remembered denial that holds for a charge of `cost`, if there is one. A larger cost is denied too, but
    /// must wait longer, and Redis alone knows how long.
    pub(crate) fn denied(&self, name: StateName, limit: &Limit, cost: u64) -> Option<Outcome> {
        let denial = self.with(name, |hint| hint.denial).flatten()?;
        let now = now();
        let is_meant = match denial.outcome.retry {
            Retry::Never => cost >= denial.cost,
            _ => cost == denial.cost,
        };
        if denial.form != *limit.form() || !is_meant || now >= denial.until {
            return None;
        }
        let waited = Micros::from(now.saturating_duration_since(denial.counts_from));
        let retry = match denial.outcome.retry {
            Retry::After(wait) if waited < wait => Retry::After(wait - waited),
            Retry::After(_) | Retry::Now => return None,
            Retry::Never => Retry::Never,
        };
        Some(Outcome {
            retry,
            is_remembered: true,
            ..denial.outcome
        })
    }

    /// Remembers the outcome of a charge of `cost`.
    pub(crate) fn remember(
        &self,
        name: StateName,
        limit: &Limit,
        cost: u64,
        outcome: &Outcome,
        times: AnswerTimes,
    ) {
        let AnswerTimes {
            sent_at,
            counts_from,
            longest,
        } = times;
        let hold = match outcome.retry {
            Retry::After(wait) => Duration::from(wait).min(longest),
            Retry::Never => longest,
            Retry::Now => Duration::ZERO,
        };
        let denial =
            (!outcome.allowed && !limit.is_concurrency() && !hold.is_zero()).then(|| Denial {
                form: *limit.form(),
                cost,
                counts_from,
                until: counts_from + hold,
                outcome: *outcome,
            });
        let hint = Hint {
            times: sent_at,
            outcome: *outcome,
            flows: matches!(limit.form(), Form::Bucket(_)),
            denial,
            forgotten_at: None,
        };
        self.put(name, hint);
    }

    fn put(&self, name: StateName, mut hint: Hint) {
        let mut part = self.part(name).lock();
        let known = part.young.get(&name).or_else(|| part.old.get(&name));
        if let Some(forgotten_at) = known.and_then(|known| known.forgotten_at) {
            if hint.forgotten_at.is_none() && hint.times <= forgotten_at {
                // The call was sent before the state was forgotten.
                return;
            }
            hint.forgotten_at = hint.forgotten_at.or(Some(forgotten_at));
        }
        if part.young.len() >= YOUNG && !part.young.contains_key(&name) {
            part.old = std::mem::take(&mut part.young);
        }
        part.young.insert(name, hint);
    }

    /// How much remained by the last outcome.
    pub(crate) fn remaining(&self, name: StateName) -> Option<u64> {
        self.with(name, |hint| hint.outcome.remaining)
            .filter(|remaining| *remaining < u64::MAX)
    }

    /// The last outcome, if it is no older than `age`.
    pub(crate) fn recent(&self, name: StateName, age: Duration) -> Option<Outcome> {
        let (outcome, times) = self.with(name, |hint| (hint.outcome, hint.times))?;
        (times.elapsed() <= age).then_some(outcome)
    }

    /// Usage by the last outcome, decayed to now. Consumed by the call.
    pub(crate) fn take_used(&self, name: StateName) -> Option<u64> {
        let mut part = self.part(name).lock();
        let young = part.young.remove(&name);
        let hint = part.old.remove(&name).filter(|_| young.is_none());
        let hint = young.or(hint)?;
        drop(part);
        let used = hint.outcome.used();
        let whole = hint.outcome.reset_at.since(hint.outcome.at).get();
        let passed = Micros::from(hint.times.elapsed()).get();
        if passed >= whole {
            return None;
        }
        if !hint.flows {
            return Some(used);
        }
        let left = u128::from(used) * u128::from(whole - passed);
        u64::try_from(left.div_ceil(u128::from(whole))).ok()
    }

    /// Forgets one state.
    pub(crate) fn forget(&self, name: StateName) {
        let now = now();
        let nothing = admitted(0, u64::MAX, Timestamp::EPOCH);
        self.put(
            name,
            Hint {
                times: now,
                outcome: nothing,
                flows: false,
                denial: None,
                forgotten_at: Some(now),
            },
        );
    }

    /// Forgets the denial of one state.
    pub(crate) fn forget_denial(&self, name: StateName) {
        let mut part = self.part(name).lock();
        let HintShard { young, old } = &mut *part;
        for hint in [young.get_mut(&name), old.get_mut(&name)]
            .into_iter()
            .flatten()
        {
            hint.denial = None;
        }
    }

    /// Forgets every denial.
    pub(crate) fn forget_denials(&self) {
        for part in &self.parts {
            let mut part = part.lock();
            let HintShard { young, old } = &mut *part;
            for hint in young.values_mut().chain(old.values_mut()) {
                hint.denial = None;
            }
        }
    }

    fn with<T>(&self, name: StateName, read: impl FnOnce(&Hint) -> T) -> Option<T> {
        let part = self.part(name).lock();
        part.young
            .get(&name)
            .or_else(|| part.old.get(&name))
            .map(read)
    }

    fn part(&self, name: StateName) -> &Mutex<HintShard> {
        &self.parts[usize::try_from(name.0 % PARTS as u64).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Algorithm, Rate};
    use tidegate_redis_wire::keys::{KeySecret, RedisKeys, SecretFrom};

    fn keys() -> RedisKeys {
        RedisKeys::new(None, KeySecret::new(SecretFrom::Public))
    }

    fn limit(algorithm: Algorithm) -> Limit {
        Limit::new(Rate::per_minute(10), algorithm).unwrap()
    }

    fn at_once() -> AnswerTimes {
        AnswerTimes {
            sent_at: now(),
            counts_from: now(),
            longest: LONGEST,
        }
    }

    fn denied(wait: u64) -> Outcome {
        let at = Timestamp::from_seconds(1_000);
        Outcome {
            allowed: false,
            limit: 10,
            remaining: 2,
            exceeded: 0,
            retry: Retry::After(Micros::new(wait)),
            reset_at: at + Micros::MINUTE,
            delay: Micros::ZERO,
            at,
            is_remembered: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_serves_the_same_cost_until_it_ends() {
        let (hints, limit) = (Hints::new(), limit(Algorithm::TOKEN_BUCKET));
        let keys = keys();
        let name = keys.name(b"key");
        hints.remember(name, &limit, 3, &denied(500_000), at_once());
        assert_eq!(hints.denied(name, &limit, 2), None, "a smaller cost");
        assert_eq!(hints.denied(keys.name(b"other"), &limit, 3), None);
        let more: Limit = "11/minute".parse().unwrap();
        assert_eq!(hints.denied(name, &more, 3), None, "another limit");
        let longer: Limit = "10/hour".parse().unwrap();
        assert_eq!(hints.denied(name, &longer, 3), None, "another window");
        tokio::time::advance(Duration::from_millis(200)).await;
        let denial = hints.denied(name, &limit, 3).unwrap();
        assert_eq!(denial.retry, Retry::After(Micros::new(300_000)));
        assert_eq!(hints.denied(name, &limit, 4), None, "it must wait longer");
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(hints.denied(name, &limit, 3), None, "it has ended");
        let never = Outcome {
            retry: Retry::Never,
            ..denied(1)
        };
        hints.remember(name, &limit, 11, &never, at_once());
        assert!(hints.denied(name, &limit, 12).is_some(), "nor more");

        hints.remember(name, &limit, 3, &denied(9_000_000), at_once());
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(hints.denied(name, &limit, 3).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(hints.denied(name, &limit, 3), None, "never for longer");

        hints.remember(name, &limit, 3, &denied(9_000_000), at_once());
        hints.forget_denials();
        assert_eq!(hints.denied(name, &limit, 3), None);
        let holders = Limit::concurrent(10).unwrap();
        hints.remember(name, &holders, 3, &denied(900_000), at_once());
        assert_eq!(hints.denied(name, &holders, 3), None, "never of holders");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_used_is_returned_once_and_fades() {
        let hints = Hints::new();
        let name = keys().name(b"key");
        let remember = |algorithm| {
            hints.remember(name, &limit(algorithm), 1, &denied(1), at_once());
        };
        remember(Algorithm::TOKEN_BUCKET);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(hints.take_used(name), Some(4), "half of 8 has flowed back");
        assert_eq!(hints.take_used(name), None, "once");
        remember(Algorithm::FIXED_WINDOW);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(hints.take_used(name), Some(8), "until the window ends");
        remember(Algorithm::FIXED_WINDOW);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(hints.take_used(name), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (hints, limit) = (Hints::new(), limit(Algorithm::TOKEN_BUCKET));
        let keys = keys();
        for key in 0..PARTS * YOUNG * 5 {
            let name = keys.name(&key.to_ne_bytes());
            hints.remember(name, &limit, 3, &denied(500_000), at_once());
        }
        let kept: usize = hints
            .parts
            .iter()
            .map(|part| {
                let part = part.lock();
                part.young.len() + part.old.len()
            })
            .sum();
        assert!(kept <= PARTS * YOUNG * 2, "{kept}");
    }
}
