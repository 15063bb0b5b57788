//! When requests arrive, and for which key: patterns in proportion to a limit, drawn with a seed.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "random pauses are drawn as fractions of a second, and are far from the bounds of integers"
)]

use tidegate_core::{Micros, Timestamp};

use super::random::ArrivalRandom;
use crate::timeline::START;

/// How many keys [`ArrivalPattern::ZipfKeys`] has.
const ZIPF_KEYS: u32 = 1_000;
/// How many limits' worth of requests all keys of [`ArrivalPattern::ZipfKeys`] get together.
const ZIPF_TIMES: f64 = 40.0;

/// One request: its time and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives.
    pub at: Timestamp,
    /// The number of its key.
    pub key: u32,
}

/// How requests arrive, in proportion to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalPattern {
    /// Independent requests of one key, at so many percent of the limit on average.
    Poisson {
        /// The average, in percent of the limit.
        percent: u32,
    },
    /// Half a window at four times the limit, then one and a half windows without a request.
    OnOff,
    /// A client that knows where windows and slots begin. In every second window: the whole limit in the last
    /// hundredth before its end and again in the first hundredth after it, requests at one and a half times the limit
    /// through the next window, and the whole limit once more a tenth before that window's end.
    WindowEdge,
    /// A thousand keys, the n-th with a weight of 1/n: a few far over the limit, most of them below it.
    ZipfKeys,
    /// One request after the other at the same distance, at so many percent of the limit.
    Steady {
        /// In percent of the limit.
        percent: u32,
    },
}

impl ArrivalPattern {
    /// The patterns of the suite.
    pub const ALL: [Self; 7] = [
        Self::Poisson { percent: 50 },
        Self::Poisson { percent: 90 },
        Self::Poisson { percent: 100 },
        Self::Poisson { percent: 200 },
        Self::OnOff,
        Self::WindowEdge,
        Self::ZipfKeys,
    ];

    /// The name in results.
    pub fn name(self) -> String {
        match self {
            Self::Poisson { percent } => format!("poisson {percent}"),
            Self::OnOff => "on/off".to_owned(),
            Self::WindowEdge => "window edge".to_owned(),
            Self::ZipfKeys => "zipf keys".to_owned(),
            Self::Steady { percent } => format!("steady {percent}"),
        }
    }
}

/// What is to be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivalPlan {
    /// How requests arrive.
    pub pattern: ArrivalPattern,
    /// The limit that the pattern refers to: so many requests in a window.
    pub count: u64,
    /// Its window.
    pub window: Micros,
    /// For how many windows requests arrive.
    pub windows: u64,
    /// What the arrivals follow from.
    pub seed: u64,
}

impl ArrivalPlan {
    /// The arrivals in the order of their times, the first not before [`START`].
    pub fn draw(&self) -> Vec<Arrival> {
        let mut random = ArrivalRandom::new(self.seed);
        let mut arrivals = match self.pattern {
            ArrivalPattern::Poisson { percent } => {
                let rate = f64::from(percent) / 100.0;
                self.independent(&mut random, rate, |_| true)
            }
            ArrivalPattern::OnOff => {
                let period = self.window.times(2).get();
                let on = self.window.get() / 2;
                self.independent(&mut random, 4.0, |passed| passed % period < on)
            }
            ArrivalPattern::WindowEdge => self.edges(),
            ArrivalPattern::ZipfKeys => {
                let mut arrivals = self.independent(&mut random, ZIPF_TIMES, |_| true);
                let keys = ZipfRanks::new(ZIPF_KEYS);
                for arrival in &mut arrivals {
                    arrival.key = keys.draw(&mut random);
                }
                arrivals
            }
            ArrivalPattern::Steady { percent } => {
                let total = self.count * self.windows * u64::from(percent) / 100;
                even(Micros::ZERO, self.window.times(self.windows), total)
            }
        };
        arrivals.sort_by_key(|arrival| arrival.at);
        arrivals
    }

    /// Requests with independent pauses, at `times` the limit on average; those at times that do not count are left
    /// out.
    fn independent(
        &self,
        random: &mut ArrivalRandom,
        times: f64,
        counts: impl Fn(u64) -> bool,
    ) -> Vec<Arrival> {
        let pause = self.window.get() as f64 / (self.count as f64 * times);
        let end = self.window.times(self.windows).get() as f64;
        let mut arrivals = Vec::new();
        let mut passed = 0.0;
        loop {
            passed -= random.unit().ln() * pause;
            if passed >= end {
                return arrivals;
            }
            if counts(passed as u64) {
                arrivals.push(Arrival {
                    at: START + Micros::new(passed as u64),
                    key: 0,
                });
            }
        }
    }

    fn edges(&self) -> Vec<Arrival> {
        let (window, count) = (self.window, self.count);
        let short = Micros::new(window.get() / 100);
        let mut arrivals = Vec::new();
        for pair in 0..self.windows / 2 {
            let before = window.times(pair * 2);
            let edge = before + window;
            // Opens the window of a limit whose windows begin at the first request.
            arrivals.extend(even(before, short, 1));
            arrivals.extend(even(edge - short, short, count));
            arrivals.extend(even(edge, short, count));
            arrivals.extend(even(edge + short, window - short, count * 3 / 2));
            let tenth = Micros::new(window.get() / 10);
            arrivals.extend(even(edge + window - tenth, short, count));
        }
        arrivals
    }
}

/// So many requests at the same distance, within `lasts` from `from` after the start.
fn even(from: Micros, lasts: Micros, requests: u64) -> Vec<Arrival> {
    let at = |number: u64| {
        let passed = u128::from(lasts.get()) * u128::from(number) / u128::from(requests.max(1));
        START + from + Micros::new(u64::try_from(passed).unwrap_or(0))
    };
    let arrival = |number| Arrival {
        at: at(number),
        key: 0,
    };
    (0..requests).map(arrival).collect()
}

/// Draws the n-th of many with a weight of 1/n.
struct ZipfRanks {
    sums: Vec<f64>,
}

impl ZipfRanks {
    fn new(count: u32) -> Self {
        let mut sum = 0.0;
        let weigh = |rank| {
            sum += 1.0 / f64::from(rank);
            sum
        };
        Self {
            sums: (1..=count).map(weigh).collect(),
        }
    }

    fn draw(&self, random: &mut ArrivalRandom) -> u32 {
        let whole = self.sums.last().copied().unwrap_or(1.0);
        let drawn = random.unit() * whole;
        self.sums.partition_point(|sum| *sum < drawn) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(pattern: ArrivalPattern) -> ArrivalPlan {
        ArrivalPlan {
            pattern,
            count: 100,
            window: Micros::SECOND,
            windows: 20,
            seed: 7,
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_arrivals() {
        for pattern in ArrivalPattern::ALL {
            let drawn = plan(pattern).draw();
            assert_eq!(drawn, plan(pattern).draw());
            let in_order = drawn.is_sorted_by_key(|arrival| arrival.at);
            assert!(in_order && drawn[0].at >= START, "{pattern:?}");
        }
        let other = ArrivalPlan {
            seed: 8,
            ..plan(ArrivalPattern::OnOff)
        };
        assert_ne!(other.draw(), plan(ArrivalPattern::OnOff).draw());
    }

    #[test]
    fn a_pattern_has_as_many_requests_as_it_says() {
        #[rustfmt::skip]
        let table = [
            // pattern                               expected  more or less
            (ArrivalPattern::Poisson { percent: 50 },   1_000,    150),
            (ArrivalPattern::Poisson { percent: 200 },  4_000,    300),
            (ArrivalPattern::OnOff,                     2_000,    250),
            (ArrivalPattern::WindowEdge,                4_510,      0),
            (ArrivalPattern::ZipfKeys,                 80_000,  1_000),
            (ArrivalPattern::Steady { percent: 160 },   3_200,      0),
        ];
        for (pattern, expected, spread) in table {
            let drawn = plan(pattern).draw().len();
            assert!(drawn.abs_diff(expected) <= spread, "{pattern:?}: {drawn}");
        }
    }
}
