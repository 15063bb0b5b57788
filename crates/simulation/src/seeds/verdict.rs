//! What a run says about the promises.

use tidegate_core::Limit;
use tidegate_core::{Charge, ManualClock, MemoryStore, Scope, Timestamp};

use super::SeedReport;
use super::judge::{Admission, ExtraQuota, Promise};
use super::rule::WithoutRedis;
use super::run::{LEASE, SeedRun};
use crate::question::GateAnswer;

/// For how long after a change requests may still be decided by the rules before it.
const CHANGING: u64 = 500_000;
/// The least use of a limit that is promised, in hundredths of a percent.
const LEAST_USE: u64 = 9_800;
/// How long after the limit first denied something its use is measured, in microseconds.
const SATURATED_AFTER: u64 = 500_000;

/// One store that decides without delay.
struct ReferenceStore {
    store: MemoryStore,
    clock: ManualClock,
    limit: Limit,
}

impl ReferenceStore {
    fn new(limit: &Limit) -> Self {
        let clock = ManualClock::default();
        let builder = MemoryStore::builder().max_keys(10);
        Self {
            store: builder.clock(clock.clone()).build(),
            clock,
            limit: limit.clone(),
        }
    }

    /// Whether it admits a request at this time.
    fn admits(&mut self, at: u64, cost: u64) -> bool {
        self.clock.set(Timestamp::from_micros(at));
        let charge = Charge {
            scope: &Scope::new("reference"),
            limit: &self.limit,
            key: "u1",
            cost,
        };
        self.store.charge_one(&charge).allowed
    }
}

/// What a reference and the instances admitted up to a request.
#[derive(Debug, Clone, Copy)]
struct UseSoFar {
    /// The true time of the request.
    at: u64,
    possible: u64,
    admitted: u64,
}

impl UseSoFar {
    /// How many units less than the reference the instances have used.
    fn outstanding(&self) -> i64 {
        self.possible.cast_signed() - self.admitted.cast_signed()
    }
}

impl SeedRun {
    pub(super) fn report(mut self, seed: u64) -> SeedReport {
        let used = self.used();
        self.check_redis();
        self.check_without_redis();
        self.check_recovery();
        if let Some(used) = used.filter(|used| *used < LEAST_USE) {
            self.broken
                .push(format!("only {used} of 10000 parts of the limit were used"));
        }
        let count = |is: fn(&&GateAnswer) -> bool| self.answers.iter().filter(is).count() as u64;
        SeedReport {
            seed,
            trace: self.world.trace(),
            answers: self.answers.len() as u64,
            admitted: count(|answer| answer.is_allowed),
            degraded: count(|answer| answer.is_degraded),
            used,
            plan: format!("{:#?}", self.plan),
            broken: self.broken,
        }
    }

    /// The limits in force by true time, each as long as an instance may have used it.
    fn limits(&self, share: impl Fn(u64) -> Limit) -> Vec<(u64, u64, Limit)> {
        let changed_at = *self.changed_at.lock();
        let limits = self.counts.iter().enumerate();
        let limits = limits.map(|(index, (from, count))| {
            // At least until the next one came, also if no instance ran then.
            let next = self.counts.get(index + 1);
            let until = next.map_or(u64::MAX, |(next, _)| changed_at.max(*next) + CHANGING);
            (*from, until, share(*count))
        });
        limits.collect()
    }

    /// What Redis decided is within the limit by the clock of Redis.
    fn check_redis(&mut self) {
        let clock = &self.server;
        let admitted = self
            .answers
            .iter()
            .filter(|answer| answer.is_allowed && !answer.is_degraded);
        let admissions: Vec<Admission> = admitted
            .map(|answer| Admission {
                from: clock.at(answer.asked_at),
                to: clock.latest(answer.answered_at),
                cost: answer.question.cost,
            })
            .collect();
        let limits: Vec<_> = self
            .limits(|count| self.plan.rule.limit(count))
            .into_iter()
            .map(|(from, until, limit)| {
                let until = if until == u64::MAX {
                    until
                } else {
                    clock.latest(until)
                };
                (clock.at(from), until, limit)
            })
            .collect();
        let most = limits
            .iter()
            .map(|(_, _, limit)| limit.capacity())
            .max()
            .unwrap_or(0);
        let window = self.plan.rule.window.get();
        // What was on lease when state was lost may be used until its end.
        let extras: Vec<ExtraQuota> = self
            .losses
            .iter()
            .map(|at| ExtraQuota {
                units: most,
                from: clock.at(*at).min(clock.at(at.saturating_sub(1))),
                until: clock.latest(*at) + 2 * window + 1_000_000,
            })
            .collect();
        let promise = Promise {
            limits: &limits,
            extras: &extras,
        };
        if let Some(excess) = promise.check(&admissions) {
            let at = excess.at.saturating_sub(crate::clocks::BEGIN.as_micros());
            self.broken.push(format!(
                "{} more than the limit were admitted at {at} µs by the clock of Redis",
                excess.units
            ));
        }
    }

    /// What instances decided without Redis is as the rule says.
    fn check_without_redis(&mut self) {
        let is_degraded = |answer: &&GateAnswer| answer.is_allowed && answer.is_degraded;
        let degraded: Vec<&GateAnswer> = self.answers.iter().filter(is_degraded).collect();
        match self.plan.rule.without_redis {
            WithoutRedis::Allow => {}
            WithoutRedis::Deny => {
                if !degraded.is_empty() {
                    let count = degraded.len();
                    self.broken
                        .push(format!("{count} were admitted without Redis"));
                }
            }
            WithoutRedis::Local => {
                for instance in 0..self.clocks.len() {
                    for life in 1..=self.world.lives(instance) {
                        let of_life = |answer: &&&GateAnswer| {
                            answer.instance == instance && answer.life == life
                        };
                        let of_life: Vec<_> = degraded.iter().filter(of_life).copied().collect();
                        if let Some(broken) = self.check_share(instance, &of_life) {
                            self.broken.push(broken);
                        }
                    }
                }
            }
        }
    }

    /// What one instance decided alone is within its share by its own clock.
    fn check_share(&self, instance: usize, degraded: &[&GateAnswer]) -> Option<String> {
        let clock = &self.clocks[instance];
        let admissions: Vec<Admission> = degraded
            .iter()
            .map(|answer| Admission {
                from: clock.at(answer.asked_at),
                to: clock.latest(answer.answered_at),
                cost: answer.question.cost,
            })
            .collect();
        // An instance that has left is no longer counted.
        let count = self.plan.instances.len() as u64;
        let count = count.saturating_sub(self.leaves()).max(1);
        let limits = self.limits(|whole| {
            let limit = self.plan.rule.limit(whole);
            let rate = limit.rate();
            let mut part = rate.with_count((rate.count / count).max(1));
            part.burst = rate.burst.map(|burst| (burst / count).max(1));
            Limit::new(part, limit.algorithm()).unwrap_or(limit)
        });
        let limits: Vec<_> = limits
            .into_iter()
            .map(|(from, until, limit)| {
                let until = if until == u64::MAX {
                    until
                } else {
                    clock.latest(until)
                };
                (clock.at(from), until, limit)
            })
            .collect();
        let promise = Promise {
            limits: &limits,
            extras: &[],
        };
        let excess = promise.check(&admissions)?;
        let at = excess.at.saturating_sub(crate::clocks::BEGIN.as_micros());
        Some(format!(
            "instance {instance} admitted {} more than its share at {at} µs by its clock",
            excess.units
        ))
    }

    /// After a time in which nothing went wrong the whole limit was there again: as much as in a store that has
    /// decided only what was admitted since.
    fn check_recovery(&mut self) {
        let Some(last) = &self.last else {
            return;
        };
        let mut reference = ReferenceStore::new(&last.limit);
        let (mut possible, mut admitted) = (0, 0);
        let of_last = |answer: &&GateAnswer| answer.asked_at >= last.since;
        let mut answers: Vec<&GateAnswer> = self.answers.iter().filter(of_last).collect();
        answers.sort_by_key(|answer| answer.asked_at);
        for answer in answers {
            let is_admitted = answer.is_allowed && !answer.is_degraded;
            let is_last = answer.asked_at >= last.asked_at;
            if is_last || is_admitted {
                let is_possible = reference.admits(self.server.at(answer.asked_at), 1);
                possible += u64::from(is_last && is_possible);
            }
            admitted += u64::from(is_last && is_admitted);
        }
        let expected = if self.plan.rule.is_leased {
            let possible = possible.saturating_sub(last.unreported);
            (possible * LEAST_USE).div_ceil(10_000)
        } else {
            possible
        };
        if admitted < expected {
            self.broken.push(format!(
                "only {admitted} of {possible} were there again after all was quiet"
            ));
        }
    }

    /// How much of the limit was used, compared with one store that decides all requests without delay.
    ///
    /// Units on lease are used later than that store would use them, and are lost only if they are not used by
    /// their end. So use is measured between two instants with the least outstanding: one in the first period
    /// after saturation, one in the last. In a period every lease that was out at its begin ends.
    fn used(&self) -> Option<u64> {
        if !self.plan.is_calm {
            return None;
        }
        let limit = self.plan.rule.limit(self.plan.rule.count);
        let mut reference = ReferenceStore::new(&limit);
        let mut answers: Vec<&GateAnswer> = self.answers.iter().collect();
        answers.sort_by_key(|answer| answer.asked_at);
        let mut uses = Vec::with_capacity(answers.len());
        let (mut possible, mut admitted, mut from) = (0, 0, u64::MAX);
        for answer in answers {
            let at = self.server.at(answer.asked_at);
            let is_possible = reference.admits(at, answer.question.cost);
            if !is_possible {
                from = from.min(answer.asked_at + SATURATED_AFTER);
            }
            possible += u64::from(is_possible);
            admitted += u64::from(answer.is_allowed && !answer.is_degraded);
            if answer.asked_at >= from {
                uses.push(UseSoFar {
                    at: answer.asked_at,
                    possible,
                    admitted,
                });
            }
        }
        let period = if limit.algorithm().is_bucket() {
            LEASE
        } else {
            self.plan.rule.window.get()
        };
        let (first, last) = (uses.first()?.at, uses.last()?.at);
        let early = uses.iter().filter(|so_far| so_far.at <= first + period);
        let late = uses.iter().filter(|so_far| so_far.at + period >= last);
        let early = early.min_by_key(|so_far| so_far.outstanding())?;
        // The last of them, so that as much as possible is measured.
        let late = late.rev().min_by_key(|so_far| so_far.outstanding())?;
        let possible = late.possible.checked_sub(early.possible)?;
        let admitted = late.admitted.saturating_sub(early.admitted);
        (possible > 0).then(|| admitted * 10_000 / possible)
    }
}
