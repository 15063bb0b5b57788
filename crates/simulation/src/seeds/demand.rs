//! What clients ask for: how many requests reach an instance in a millisecond, and what they cost.

use super::plan::SETTLED;
use crate::random::SeededRandom;

/// How requests are spread over time and instances. All times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DemandPattern {
    /// Evenly.
    Steady,
    /// None for most of the time, and then many.
    Bursts { period: u64, busy: u64 },
    /// Around the ends of windows.
    Ends { window: u64 },
    /// All to one instance, which changes.
    Wandering { period: u64 },
    /// A part of the limit, then little while leases end, then more than the limit.
    Lulls {
        spike: u64,
        lull: u64,
        drain: u64,
        /// In the lull each instance is asked once in so long; 0: never.
        gap: u64,
    },
    /// In every other span (a window or slot) only a part of the limit, and none of it close to the end, so that
    /// units are left over then. In the spans between, more than the limit.
    Leftovers { span: u64, before_end: u64 },
}

/// What demand is drawn for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DemandRange {
    pub(crate) instances: usize,
    pub(crate) per_second: u64,
    /// What is admitted without a wait.
    pub(crate) capacity: u64,
    /// In milliseconds.
    pub(crate) window: u64,
    /// The window or slot with which leases end; none for a bucket.
    pub(crate) span: Option<u64>,
    pub(crate) is_leased: bool,
}

/// The demand of a seed.
#[derive(Debug, Clone)]
pub(crate) struct SeedDemand {
    pattern: DemandPattern,
    /// Thousandths of a request in a millisecond, over all instances.
    rate: u64,
    /// How many requests are a part of the limit that is used at once.
    part: u64,
    /// How many requests are more than the limit.
    excess: u64,
    /// How much of it each instance gets, in parts of their sum.
    weights: Vec<u64>,
    /// How many of a thousand requests cost more than 1.
    costly: u64,
}

/// How long the part of the limit takes that leaves units over.
const SPIKE: u64 = 12;
/// In how long half of what is more than the limit is asked for.
const RUSH: u64 = 20;

impl SeedDemand {
    /// At least half more than the limit, at all times.
    pub(crate) fn saturating(random: &mut SeededRandom, instances: usize, per_second: u64) -> Self {
        let weights = (0..instances).map(|_| random.between(1, 6)).collect();
        Self {
            pattern: DemandPattern::Steady,
            rate: per_second * random.between(200, 300) / 100,
            part: 0,
            excess: 0,
            weights,
            costly: 0,
        }
    }

    pub(crate) fn draw(random: &mut SeededRandom, range: DemandRange) -> Self {
        let longest = random.choose(&[260, 900]);
        let has_leftovers = range.is_leased && random.happens(500);
        let pattern = match (random.below(6), range.span) {
            (_, None) if has_leftovers => DemandPattern::Lulls {
                spike: random.between(2, 30),
                lull: random.between(500, 1_900),
                drain: random.between(150, 400),
                gap: random.choose(&[0, 0, 130, 170]),
            },
            (_, Some(span)) if has_leftovers => {
                let longest = random.choose(&[60, 300]).min(span / 2);
                DemandPattern::Leftovers {
                    span,
                    before_end: random.between(SPIKE + 2, longest),
                }
            }
            // Longer than a bucket takes to be full, shorter than idle units are kept.
            (0 | 1, _) => DemandPattern::Bursts {
                period: random.between(110, longest),
                busy: random.between(2, 30),
            },
            (2, _) => DemandPattern::Ends {
                window: range.window,
            },
            (3, _) => DemandPattern::Wandering {
                period: random.between(50, 700),
            },
            _ => DemandPattern::Steady,
        };
        let weights = (0..range.instances).map(|_| random.between(1, 6)).collect();
        Self {
            pattern,
            rate: range.per_second * random.between(70, 400) / 100,
            part: range.capacity * random.between(20, 80) / 100,
            excess: range.capacity * random.between(150, 300) / 100,
            weights,
            costly: if has_leftovers {
                0
            } else {
                random.choose(&[0, 0, 100])
            },
        }
    }

    /// Whether units are left over when a lease ends.
    pub(crate) fn has_leftovers(&self) -> bool {
        matches!(
            self.pattern,
            DemandPattern::Lulls { .. } | DemandPattern::Leftovers { .. }
        )
    }

    /// How long demand must last at least to be of any use, in milliseconds.
    pub(crate) fn least_time(&self) -> u64 {
        match self.pattern {
            DemandPattern::Lulls {
                spike, lull, drain, ..
            } => spike + lull + drain,
            DemandPattern::Leftovers { span, .. } => 4 * span,
            _ => 0,
        }
    }

    /// When it is busy around a time: from when on, for how long, and when the next busy time begins.
    fn busy(&self, around: u64) -> Option<(u64, u64, u64)> {
        let (period, busy) = match self.pattern {
            DemandPattern::Steady => return None,
            DemandPattern::Bursts { period, busy } => (period, busy),
            DemandPattern::Ends { window } => (window, 8),
            DemandPattern::Wandering { period } => (period, period),
            DemandPattern::Lulls {
                spike, lull, drain, ..
            } => {
                let period = spike + lull + drain;
                let from = SETTLED + (around - SETTLED) / period * period;
                return Some((from, spike, from + spike + lull));
            }
            DemandPattern::Leftovers { span, before_end } => {
                let end = (around / (2 * span) * 2 + 1) * span;
                return Some((end - before_end, SPIKE, end));
            }
        };
        let from = around / period * period;
        Some((from, busy, from + period))
    }

    /// Pauses from a busy time to the begin of a later one, both in milliseconds: when what an instance still
    /// holds does the most harm. None if no time is busier than others.
    pub(crate) fn pause(&self, random: &mut SeededRandom, around: u64) -> Option<(u64, u64)> {
        let (from, busy, next) = self.busy(around)?;
        let period = next - from;
        let from = from + random.below(busy + 4);
        let periods = random.between(1, (1_600 / period).max(1));
        let mut until = next + (periods - 1) * period + random.below(6);
        if matches!(self.pattern, DemandPattern::Lulls { .. }) {
            // When requests wait for it: they come before what it does by itself.
            until = next + random.between(5, 30);
        }
        Some((from, until.saturating_sub(from).max(1)))
    }

    /// From when on and for how long messages are held, in milliseconds, so that what an instance gives back
    /// arrives when others need it. None if nothing is left over.
    pub(crate) fn hold(&self, random: &mut SeededRandom, around: u64) -> Option<(u64, u64)> {
        let (from, busy, next) = self.busy(around)?;
        let (from, until) = match self.pattern {
            DemandPattern::Lulls { lull, drain, .. } => {
                let from = from + busy + random.below(lull.min(150));
                (from, next + random.below(drain / 2))
            }
            DemandPattern::Leftovers { before_end, .. } => {
                let from = from + busy + random.below(before_end.min(30));
                (from, next + random.between(2, 120))
            }
            _ => return None,
        };
        Some((from, until.saturating_sub(from).max(1)))
    }

    /// The costs of the requests that reach an instance in this millisecond.
    pub(crate) fn costs(
        &self,
        random: &mut SeededRandom,
        instance: usize,
        millisecond: u64,
    ) -> Vec<u64> {
        let rate = self.rate_at(instance, millisecond);
        let count = rate / 1_000 + u64::from(random.happens(rate % 1_000));
        let cost = |random: &mut SeededRandom| {
            let is_costly = random.happens(self.costly);
            if is_costly { random.between(2, 5) } else { 1 }
        };
        (0..count.min(60)).map(|_| cost(random)).collect()
    }

    /// How many requests reach an instance in this millisecond, in thousandths.
    fn rate_at(&self, instance: usize, millisecond: u64) -> u64 {
        let all = self.weights.iter().sum::<u64>().max(1);
        let share_of = |rate: u64| rate * self.weights[instance] / all;
        let share = share_of(self.rate);
        let instances = self.weights.len() as u64;
        match self.pattern {
            DemandPattern::Steady => share,
            DemandPattern::Bursts { period, busy } => {
                let is_busy = millisecond % period < busy;
                if is_busy { share * period / busy } else { 0 }
            }
            DemandPattern::Ends { window } => {
                let from_end = (millisecond + 8) % window;
                if from_end < 16 {
                    share * window / 16
                } else {
                    share / 20
                }
            }
            DemandPattern::Wandering { period } => {
                let is_here = millisecond / period % instances == instance as u64;
                if is_here { self.rate } else { 0 }
            }
            DemandPattern::Lulls {
                spike,
                lull,
                drain,
                gap,
            } => {
                let passed = (millisecond - SETTLED) % (spike + lull + drain);
                if passed < spike {
                    share_of(self.part * 1_000 / spike)
                } else if passed >= spike + lull + RUSH {
                    share_of(self.excess * 500 / (drain - RUSH))
                } else if passed >= spike + lull {
                    share_of(self.excess * 500 / RUSH)
                } else if gap > 0 && passed % gap == instance as u64 {
                    1_000
                } else {
                    0
                }
            }
            DemandPattern::Leftovers { span, before_end } => {
                let passed = millisecond % (2 * span);
                let spike = span - before_end;
                if passed >= span {
                    share_of(self.excess * 1_000 / span)
                } else if (spike..spike + SPIKE).contains(&passed) {
                    share_of(self.part * 1_000 / SPIKE)
                } else {
                    0
                }
            }
        }
    }
}
