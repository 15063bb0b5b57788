//! The memory store, and as many of them as there are instances where nothing is shared.

use tidegate_core::Algorithm;
use tidegate_testkit::accuracy::{DecidedArrival, Judge, MemoryRun, all_algorithms};

use crate::row::{Contender, Retries, row};
use crate::scenario::Scenario;

pub fn run() {
    for scenario in Scenario::all() {
        for algorithm in all_algorithms() {
            run_one(&scenario, algorithm, 1);
        }
    }
    // Two servers that share nothing: each grants the whole limit.
    run_one(&Scenario::apisix(), Algorithm::SlidingWindowCounter, 2);
}

fn run_one(scenario: &Scenario, algorithm: Algorithm, instances: u64) {
    let limit = scenario.limit(algorithm);
    let stores: Vec<MemoryRun> = (0..instances).map(|_| MemoryRun::new(&limit)).collect();
    let mut judge = Judge::new(&limit).expect("a rate with a window");
    let mut retries = Retries::default();
    let arrivals = scenario.arrivals();
    let instance_of = scenario.instances(arrivals.len(), instances);
    for (arrival, instance) in arrivals.into_iter().zip(instance_of) {
        let store = &stores[instance];
        let outcome = store.charge(arrival);
        let outcome = outcome.expect("a store with a clock and one that is given the time agree");
        judge.take(DecidedArrival::new(arrival.at, arrival.key, &outcome));
        for retried in store.retries(arrival, &outcome) {
            retries.add(retried);
        }
    }
    let contender = Contender {
        name: "tidegate",
        store: "memory",
        instances,
        is_virtual: true,
    };
    let figures = judge.finish();
    println!("{}", row(scenario, &contender, &limit, &figures, Some(retries)));
}
