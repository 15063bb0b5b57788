//! What clients ask for: how many requests reach an instance in a millisecond, and what they cost.

use crate::random::SeededRandom;

/// How requests are spread over time and instances.
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
}

/// The demand of a seed.
#[derive(Debug, Clone)]
pub(crate) struct SeedDemand {
    pattern: DemandPattern,
    /// Thousandths of a request in a millisecond, over all instances.
    rate: u64,
    /// How much of it each instance gets, in parts of their sum.
    weights: Vec<u64>,
    /// How many of a thousand requests cost more than 1.
    costly: u64,
}

impl SeedDemand {
    /// At least half more than the limit, at all times.
    pub(crate) fn saturating(random: &mut SeededRandom, instances: usize, per_second: u64) -> Self {
        let weights = (0..instances).map(|_| random.between(1, 6)).collect();
        Self {
            pattern: DemandPattern::Steady,
            rate: per_second * random.between(200, 300) / 100,
            weights,
            costly: 0,
        }
    }

    pub(crate) fn draw(
        random: &mut SeededRandom,
        instances: usize,
        (per_second, window): (u64, u64),
    ) -> Self {
        let longest = random.choose(&[260, 900]);
        let pattern = match random.below(6) {
            // Longer than a bucket takes to be full, shorter than idle units are kept.
            0 | 1 => DemandPattern::Bursts {
                period: random.between(110, longest),
                busy: random.between(2, 30),
            },
            2 => DemandPattern::Ends { window },
            3 => DemandPattern::Wandering {
                period: random.between(50, 700),
            },
            _ => DemandPattern::Steady,
        };
        let weights = (0..instances).map(|_| random.between(1, 6)).collect();
        Self {
            pattern,
            rate: per_second * random.between(70, 400) / 100,
            weights,
            costly: random.choose(&[0, 0, 100]),
        }
    }

    /// Pauses from a busy time to the begin of a later one, both in milliseconds: when what an instance still
    /// holds does the most harm. None if no time is busier than others.
    pub(crate) fn pause(&self, random: &mut SeededRandom, around: u64) -> Option<(u64, u64)> {
        let (period, busy) = match self.pattern {
            DemandPattern::Steady => return None,
            DemandPattern::Bursts { period, busy } => (period, busy),
            DemandPattern::Ends { window } => (window, 8),
            DemandPattern::Wandering { period } => (period, period),
        };
        let from = around / period * period + random.below(busy + 4);
        let periods = random.between(1, (1_600 / period).max(1));
        let until = (around / period + periods) * period + random.below(6);
        Some((from, until.saturating_sub(from).max(1)))
    }

    /// The costs of the requests that reach an instance in this millisecond.
    pub(crate) fn costs(
        &self,
        random: &mut SeededRandom,
        instance: usize,
        millisecond: u64,
    ) -> Vec<u64> {
        let all: u64 = self.weights.iter().sum();
        let share = self.rate * self.weights[instance] / all.max(1);
        let instances = self.weights.len() as u64;
        let rate = match self.pattern {
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
        };
        let count = rate / 1_000 + u64::from(random.happens(rate % 1_000));
        let cost = |random: &mut SeededRandom| {
            let is_costly = random.happens(self.costly);
            if is_costly { random.between(2, 5) } else { 1 }
        };
        (0..count.min(60)).map(|_| cost(random)).collect()
    }
}
