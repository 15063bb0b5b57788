//! The course of a row with the standard load: servers start, load runs, the fault begins and ends, and its figures are judged.

use std::time::{Duration, Instant};

use crate::bound::OverBound;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::load::{Demand, FleetLoad, LoadSeen, SeenAnswer};
use crate::measure::{
    FaultSpan, latencies, least_in_a_window, most_over, percentile, percentile_999, recovery, share,
};
use crate::row::{RowFact, RowFigures, RowOutcome, RuleFigures};
use crate::rules::{CountedRule, CountedShape, FailureMode, RuleSync};

/// The number of servers of a row, unless it says otherwise.
pub(crate) const SERVERS: usize = 3;
const WITHIN_50_MS: &str = "tidegate_decision_seconds_bucket{le=\"0.05\"}";

/// A row under way.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    ground: &'a Ground,
    pub(crate) fleet: Fleet,
    load: FleetLoad,
    begin: Duration,
    end: Duration,
    /// Servers whose own clients have to wait or to fail, and from when on: not part of latency and failures.
    excluded: Vec<(usize, Duration)>,
    pub(crate) facts: Vec<RowFact>,
    /// Whether the whole limit must have been used in each window.
    is_all_used: bool,
}

impl<'a> Stage<'a> {
    /// Three servers with this Redis, and load on them.
    pub(crate) fn over_redis(ground: &'a Ground, redis: &str) -> anyhow::Result<Self> {
        let mut fleet = Fleet::new(ground, SERVERS, Some(redis))?;
        fleet.start()?;
        Ok(Self::of(ground, fleet))
    }

    /// Load on servers that run.
    pub(crate) fn of(ground: &'a Ground, fleet: Fleet) -> Self {
        Self::with_demand(ground, fleet, false)
    }

    /// The same with clients that leave servers that are not ready.
    pub(crate) fn behind_a_balancer(ground: &'a Ground, fleet: Fleet) -> Self {
        Self::with_demand(ground, fleet, true)
    }

    fn with_demand(ground: &'a Ground, fleet: Fleet, follows_readiness: bool) -> Self {
        let load = FleetLoad::start(Demand {
            servers: fleet.addresses(),
            follows_readiness,
        });
        Self {
            ground,
            fleet,
            load,
            begin: Duration::ZERO,
            end: Duration::ZERO,
            excluded: Vec::new(),
            facts: Vec::new(),
            is_all_used: false,
        }
    }

    /// Load without a fault, which begins when this returns.
    pub(crate) fn warm_up(&mut self) {
        std::thread::sleep(self.ground.before);
        self.begin = self.load.elapsed();
        self.end = self.begin;
    }

    /// Waits for as long as a fault lasts.
    pub(crate) fn hold(&self) {
        std::thread::sleep(self.ground.fault);
    }

    /// Does something again and again for as long as a fault lasts.
    pub(crate) fn repeat(&self, pause: Duration, mut act: impl FnMut()) -> u32 {
        let end = self.load.elapsed() + self.ground.fault;
        let mut times = 0;
        while self.load.elapsed() < end {
            act();
            times += 1;
            std::thread::sleep(pause);
        }
        times
    }

    /// The fault is over now: recovery counts from here.
    pub(crate) fn healed(&mut self) {
        self.end = self.load.elapsed();
    }

    /// The fault was over at that time.
    pub(crate) fn healed_at(&mut self, at: Instant) {
        self.end = self.load.since_start(at);
    }

    /// From now on, clients of this server have to wait or to fail: their latency and failures say nothing.
    pub(crate) fn exclude(&mut self, server: usize) {
        self.excluded.push((server, self.load.elapsed()));
    }

    /// In each whole window, all of the limit must have been used.
    pub(crate) fn expect_all_used(&mut self) {
        self.is_all_used = true;
    }

    /// Load after the fault, then judges the run.
    pub(crate) fn finish(mut self, bound: OverBound) -> RowOutcome {
        std::thread::sleep(self.ground.after);
        let seen = self.load.stop();
        let all = self.fleet.metric("tidegate_decision_seconds_count");
        let within = self.fleet.metric(WITHIN_50_MS);
        let (dead, panics) = self.fleet.casualties();
        let span = FaultSpan {
            begin: self.begin,
            end: self.end,
        };
        let run = JudgedRun {
            ground: self.ground,
            seen: &seen,
            span,
            excluded: &self.excluded,
        };
        let mut facts = vec![
            RowFact::at_most("servers that ended", number(dead), 0.0, ""),
            RowFact::at_most("panics", number(panics), 0.0, ""),
        ];
        let mut figures = run.figures(bound, &mut facts);
        figures.over_50_ms = all - within;
        if self.is_all_used {
            facts.extend(run.usage());
        }
        facts.append(&mut self.facts);
        for failure in &seen.failures {
            println!("    a request failed: {failure}");
        }
        RowOutcome {
            figures: Some(figures),
            facts,
        }
    }
}

/// What is needed to judge a run.
struct JudgedRun<'a> {
    ground: &'a Ground,
    seen: &'a LoadSeen,
    span: FaultSpan,
    excluded: &'a [(usize, Duration)],
}

impl JudgedRun<'_> {
    fn figures(&self, bound: OverBound, facts: &mut Vec<RowFact>) -> RowFigures {
        let (ground, seen, span) = (self.ground, self.seen, self.span);
        let is_measured = |answer: &SeenAnswer| {
            let mut excluded = self.excluded.iter();
            !excluded.any(|(server, from)| *server == answer.server && answer.received >= *from)
        };
        let rules = self.over(bound);
        let beyond = rules.iter().filter(|rule| rule.over > rule.bound);
        facts.push(RowFact::at_most(
            "rules that admitted more than their bound",
            number(beyond.count()),
            0.0,
            "",
        ));
        let failed = seen
            .answers
            .iter()
            .filter(|answer| answer.check.is_none() && is_measured(answer))
            .count();
        facts.push(RowFact::at_most("failed requests", number(failed), 0.0, ""));
        let sorted = latencies(seen, |answer| answer.check.is_some() && is_measured(answer));
        let p999 = millis(percentile_999(&sorted));
        if ground.is_short {
            let within = |answer: &SeenAnswer| (span.begin..=span.end).contains(&answer.sent);
            let during = latencies(seen, |answer| {
                answer.check.is_some() && is_measured(answer) && within(answer)
            });
            facts.extend(busy_latency(ground, &during));
        } else {
            let allowed = millis(ground.deadline + ground.latency_slack);
            facts.push(RowFact::at_most("99.9 % of answers", p999, allowed, "ms"));
        }
        let recovered = recovery(seen, span.end);
        let allowed = millis(ground.recovery);
        let recovery = match recovered {
            Some(time) => RowFact::at_most("recovery", millis(time), allowed, "ms"),
            None => RowFact::is_true("recovered before the end of the run", false),
        };
        facts.push(recovery.about_time());
        let degraded = |sync: RuleSync| {
            let rules = CountedRule::all();
            let is_degraded = |answer: &SeenAnswer| {
                let check = answer.check?;
                (rules[answer.rule].sync == sync).then_some(check.is_degraded)
            };
            (share(seen, span, is_degraded) * 1_000.0).round() / 10.0
        };
        let p999_of = |sync: RuleSync| {
            let rules = CountedRule::all();
            let of_sync = |answer: &SeenAnswer| {
                answer.check.is_some() && is_measured(answer) && rules[answer.rule].sync == sync
            };
            millis(percentile_999(&latencies(seen, of_sync)))
        };
        let stalls = seen
            .stalls
            .iter()
            .map(|stall| stall.to.saturating_sub(stall.from));
        RowFigures {
            rules,
            answers: seen.answers.len(),
            failed,
            degraded_exact: degraded(RuleSync::Exact),
            degraded_leased: degraded(RuleSync::Leased),
            p999_ms: p999,
            p999_exact_ms: p999_of(RuleSync::Exact),
            p999_leased_ms: p999_of(RuleSync::Leased),
            slowest_ms: millis(sorted.last().copied().unwrap_or_default()),
            stall_ms: millis(stalls.max().unwrap_or_default()),
            over_50_ms: 0.0,
            recovery_ms: recovered.map(millis),
        }
    }

    fn over(&self, bound: OverBound) -> Vec<RuleFigures> {
        let rules = CountedRule::all().into_iter().enumerate();
        let figures = rules.map(|(index, rule)| {
            let mut own = self.seen.answers.iter().filter(|one| one.rule == index);
            let is_degraded = own.any(|one| one.check.is_some_and(|check| check.is_degraded));
            RuleFigures {
                rule: rule.id(),
                over: most_over(rule, index, self.seen),
                bound: bound.of(rule, is_degraded),
            }
        });
        figures.collect()
    }

    /// That the limit was used: to the last unit in `exact`, and to 98 % in `leased`.
    fn usage(&self) -> Vec<RowFact> {
        let rules = CountedRule::all().into_iter().enumerate();
        let windows = rules.filter(|(_, rule)| {
            rule.shape == CountedShape::FixedWindow && rule.mode == FailureMode::Deny
        });
        let facts = windows.map(|(index, rule)| {
            let least = least_in_a_window(index, self.seen).unwrap_or(0);
            let (name, percent) = match rule.sync {
                RuleSync::Exact => ("least admitted in a window of 100, exact", 100.0),
                RuleSync::Leased => ("least admitted in a window of 100, leased", 98.0),
            };
            RowFact::at_least(name, f64::from(least), percent, "")
        });
        facts.collect()
    }
}

/// Bounds of the answers during a fault, sorted, that a busy machine keeps too. A decision that waits for Redis twice exceeds the
/// first: some 20 of 3,500 wait before a Redis that does not answer is left alone. If more than these wait, the second is exceeded.
fn busy_latency(ground: &Ground, during: &[Duration]) -> [RowFact; 2] {
    let fact = |name, of_1000, allowed| {
        let found = millis(percentile(during, of_1000));
        RowFact::at_most(name, found, millis(allowed), "ms").about_time()
    };
    [
        fact(
            "99.8 % of answers during the fault",
            998,
            ground.deadline + ground.latency_slack,
        ),
        fact(
            "95 % of answers during the fault",
            950,
            ground.deadline * 4 / 5,
        ),
    ]
}

/// Milliseconds, to a tenth.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// A count as a figure.
pub(crate) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
