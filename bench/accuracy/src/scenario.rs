//! The scenarios of the suite: a limit's numbers and how requests arrive.

use tidegate_core::{Algorithm, Limit, Micros, Rate};
use tidegate_testkit::accuracy::{Arrival, ArrivalPattern, ArrivalPlan, ArrivalRandom};

/// What all arrivals follow from.
const SEED: u64 = 20_261_117;

/// Arrivals for a limit of so many requests per second.
#[derive(Clone)]
pub struct Scenario {
    pub name: String,
    pub plan: ArrivalPlan,
}

impl Scenario {
    fn new(name: String, pattern: ArrivalPattern, count: u64, windows: u64) -> Self {
        Self {
            name,
            plan: ArrivalPlan {
                pattern,
                count,
                window: Micros::SECOND,
                windows,
                seed: SEED,
            },
        }
    }

    /// Every pattern, and the public case.
    pub fn all() -> Vec<Self> {
        let of = |pattern: ArrivalPattern| {
            // Many keys have many requests.
            let windows = if pattern == ArrivalPattern::ZipfKeys { 10 } else { 30 };
            Self::new(pattern.name(), pattern, 100, windows)
        };
        let mut all: Vec<Self> = ArrivalPattern::ALL.into_iter().map(of).collect();
        all.push(Self::apisix());
        all
    }

    /// apache/apisix#13704: 500 per second, two gateways, 800 requests per second for 30 seconds.
    pub fn apisix() -> Self {
        let pattern = ArrivalPattern::Steady { percent: 160 };
        Self::new("apisix 13704".to_owned(), pattern, 500, 30)
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        self.plan.draw()
    }

    /// The limit, counted by this algorithm.
    pub fn limit(&self, algorithm: Algorithm) -> Limit {
        let rate = Rate::new(self.plan.count, self.plan.window);
        Limit::new(rate, algorithm).expect("a sound limit")
    }

    /// Which of so many instances gets each arrival: in turns if requests come evenly, else by chance.
    pub fn instances(&self, arrivals: usize, instances: u64) -> Vec<usize> {
        let is_even = matches!(self.plan.pattern, ArrivalPattern::Steady { .. });
        let mut random = ArrivalRandom::new(SEED + instances);
        let of = |index: usize| match is_even {
            true => index % instances as usize,
            false => random.below(instances) as usize,
        };
        (0..arrivals).map(of).collect()
    }

    /// Whether what was admitted in each second is to be drawn.
    pub fn is_drawn(&self) -> bool {
        let pattern = self.plan.pattern;
        matches!(pattern, ArrivalPattern::Steady { .. })
    }
}
