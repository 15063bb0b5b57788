//! Libraries of other projects, in virtual time, each next to the algorithm of ours that it resembles most.

mod governor;
mod limits;
mod throttlecrab;

pub use limits::run as run_limits;

use tidegate_core::Algorithm;
use tidegate_testkit::accuracy::{Arrival, DecidedArrival, Judge};

use crate::row::{Contender, Retries, row};
use crate::scenario::Scenario;

/// How many denials of a run are tried again: each needs the run up to there once more, as peers cannot be asked
/// without being charged.
const RETRIED: usize = 10;

/// A limiter in virtual time. Time never goes back.
trait VirtualLimiter {
    /// Charges one request so many nanoseconds after the epoch. If denied, the wait in nanoseconds that it names.
    fn charge(&mut self, key: u32, nanos: u64) -> Result<(), u64>;
}

pub fn run() {
    for scenario in Scenario::all() {
        let count = scenario.plan.count;
        run_one(&scenario, "governor", || governor::PeerGovernor::new(count));
        run_one(&scenario, "throttlecrab", || {
            throttlecrab::PeerThrottlecrab::new(count)
        });
    }
}

fn run_one<L: VirtualLimiter>(scenario: &Scenario, name: &str, new: impl Fn() -> L) {
    let limit = scenario.limit(Algorithm::TOKEN_BUCKET);
    let arrivals = scenario.arrivals();
    let (mut limiter, mut denied) = (new(), Vec::new());
    let mut judge = Judge::new(&limit).expect("a rate with a window");
    for (index, arrival) in arrivals.iter().enumerate() {
        let answer = limiter.charge(arrival.key, nanos_of(arrival));
        judge.take(DecidedArrival {
            at: arrival.at,
            key: arrival.key,
            allowed: answer.is_ok(),
            delay: tidegate_core::Micros::ZERO,
        });
        if let Err(wait) = answer {
            denied.push((index, wait));
        }
    }
    let mut retries = Retries::default();
    let step = denied.len().div_ceil(RETRIED).max(1);
    for (index, wait) in denied.into_iter().step_by(step) {
        let again = |nanos: u64| {
            let mut limiter = new();
            for arrival in &arrivals[..=index] {
                let _ = limiter.charge(arrival.key, nanos_of(arrival));
            }
            limiter.charge(arrivals[index].key, nanos).is_ok()
        };
        let then = nanos_of(&arrivals[index]) + wait;
        retries.add((again(then), again(then - 1_000)));
    }
    let contender = Contender {
        name,
        store: "",
        instances: 1,
        is_virtual: true,
    };
    let figures = judge.finish();
    println!("{}", row(scenario, &contender, &limit, &figures, Some(retries)));
}

fn nanos_of(arrival: &Arrival) -> u64 {
    arrival.at.as_micros() * 1_000
}
