//! Instances of Tidegate on one Redis, in virtual time: the store, the link and the scripts of production over a
//! simulated server and network.
//!
//! An instance runs once in a millisecond and messages take 100 to 400 microseconds, so requests are decided up to two
//! milliseconds after they arrive. They are judged at the time of their decision: that of Redis if it decided them, else
//! that of the instance.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::{
    Algorithm, Charge, Limit, Micros, Outcome, Request, Retry, Scope, RemoteStore as _, Timestamp,
};
use tidegate_simulation::{BEGIN, InstanceSettings, World};
use tidegate_testkit::accuracy::{
    Accuracy, ArrivalPattern, DecidedArrival, Judge, RETRIED_COSTS, all_algorithms,
};
use tidegate_testkit::timeline::START;

use crate::row::{Contender, Retries, row};
use crate::scenario::Scenario;

/// What the network follows from.
const SEED: u64 = 13_704;
/// When requests begin to arrive: all instances are connected and know of each other.
const FIRST: u64 = 1_000_000;
/// How many denials of each cost are tried again after a run.
const RETRIED: u64 = 3;
/// How often a limit is asked until it denies.
const MOST_ASKED: usize = 500;
/// How often an instance runs.
const TICK: Micros = Micros::from_millis(1);
/// How long before its time a request is tried where it must be denied.
const EARLY: Micros = Micros::from_millis(3);
/// The gate is not asked, only its store.
const RULES: &str = "rules:\n- {id: other, per: [], limit: 1/second}\n";

/// The public case is about a sliding window; others for comparison.
const PUBLIC: [Algorithm; 4] = [
    Algorithm::SlidingWindowCounter,
    Algorithm::SlidingWindowSlots {
        slots: Some(10),
        strict: false,
    },
    Algorithm::FIXED_WINDOW,
    Algorithm::TOKEN_BUCKET,
];

/// How instances share a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    Exact,
    Leased,
}

impl Sync {
    fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Leased => "leased",
        }
    }

    /// Whether rules may combine it with this algorithm.
    fn takes(self, algorithm: Algorithm) -> bool {
        let is_refused = matches!(
            algorithm,
            Algorithm::SlidingWindowLog | Algorithm::LeakyBucket { shape: true }
        );
        self == Self::Exact || !is_refused
    }
}

/// All scenarios, or the one of this name.
pub fn run(sync: Sync, only: Option<&str>) {
    let is_chosen = |scenario: &Scenario| only.is_none_or(|name| scenario.name == name);
    for mut scenario in Scenario::all().into_iter().filter(is_chosen) {
        let pattern = scenario.plan.pattern;
        let is_public = matches!(pattern, ArrivalPattern::Steady { .. });
        // Fewer than in memory, except where what is used of a limit is drawn.
        scenario.plan.windows = match (pattern, sync) {
            (ArrivalPattern::Steady { .. }, _) => scenario.plan.windows,
            (ArrivalPattern::Poisson { percent: 200 }, Sync::Leased) => 12,
            (ArrivalPattern::ZipfKeys, _) => 1,
            (_, Sync::Leased) => 6,
            (_, Sync::Exact) => 4,
        };
        let algorithms = if is_public { PUBLIC.to_vec() } else { all_algorithms() };
        let counts: &[u64] = if is_public { &[2] } else { &[1, 2, 4, 8] };
        for algorithm in algorithms.into_iter().filter(|one| sync.takes(*one)) {
            for instances in counts {
                run_one(&scenario, sync, algorithm, *instances);
            }
        }
    }
}

fn run_one(scenario: &Scenario, sync: Sync, algorithm: Algorithm, instances: u64) {
    let limit = scenario.limit(algorithm);
    let mut shared = SharedRun::new(sync, &limit, instances);
    let figures = shared.figures(scenario);
    if algorithm == Algorithm::FIXED_WINDOW && instances == 2 {
        let again = SharedRun::new(sync, &limit, instances).figures(scenario);
        assert_eq!(figures, again, "two runs in virtual time differ");
    }
    let retries = match sync {
        Sync::Exact => shared.retries(),
        Sync::Leased => shared.leased_retries(),
    };
    let contender = Contender {
        name: "tidegate",
        store: sync.name(),
        instances,
        is_virtual: true,
    };
    println!("{}", row(scenario, &contender, &limit, &figures, Some(retries)));
}

/// A request that was decided by an instance.
struct SimulatedDecision {
    at: Timestamp,
    /// When it was answered.
    answered_at: Timestamp,
    key: u32,
    outcome: Outcome,
}

/// One limit on so many instances.
struct SharedRun {
    world: World,
    instances: u64,
    scope: Scope,
    limit: Limit,
    decided: Arc<Mutex<Vec<SimulatedDecision>>>,
}

impl SharedRun {
    fn new(sync: Sync, limit: &Limit, instances: u64) -> Self {
        let mut world = World::new(SEED);
        for index in 0..instances {
            let mut settings = InstanceSettings::new(RULES);
            // So that they run one after the other.
            settings.start_after = index * 1_000 / instances;
            world.add(settings);
        }
        let scope = Scope::new("accuracy");
        Self {
            world,
            instances,
            scope: match sync {
                Sync::Exact => scope,
                Sync::Leased => scope.leased(),
            },
            limit: limit.clone(),
            decided: Arc::default(),
        }
    }

    /// Lets the arrivals be decided.
    fn figures(&mut self, scenario: &Scenario) -> Accuracy {
        let arrivals = scenario.arrivals();
        let instances = scenario.instances(arrivals.len(), self.instances);
        for (arrival, instance) in arrivals.iter().zip(instances) {
            let passed = arrival.at.since(START).get();
            self.world.run_until(FIRST + passed);
            self.charge(instance, (arrival.key, 1));
        }
        self.world.run_for(Duration::from_millis(50));
        let mut decided = self.take();
        assert_eq!(decided.len(), arrivals.len(), "every request is decided");
        // What Redis decides in one microsecond it decides in one call, in an order that is not known.
        decided.sort_by_key(|one| (one.at, !one.outcome.allowed));
        let mut judge = Judge::new(&self.limit).expect("a rate with a window");
        for one in decided {
            // The arrivals of other runs begin at another second of the same alignment.
            let at = START + one.at.since(BEGIN) - Micros::new(FIRST);
            judge.take(DecidedArrival::new(at, one.key, &one.outcome));
        }
        judge.finish()
    }

    /// Uses the limit up, and asks about the named time and a microsecond before. No other request comes meanwhile.
    fn retries(&mut self) -> Retries {
        let mut retries = Retries::default();
        for number in 0..RETRIED {
            for cost in RETRIED_COSTS {
                let key = self.use_up(number, cost);
                let Some((denied, wait)) = self.denied(key, cost) else {
                    continue;
                };
                let then = denied.at + wait;
                for at in [then, Timestamp::from_micros(then.as_micros() - 1)] {
                    self.ask(0, (key, cost), Some(at));
                }
                self.world.run_for(Duration::from_millis(20));
                let asked = self.take();
                retries.add((asked[0].outcome.allowed, asked[1].outcome.allowed));
            }
        }
        retries
    }

    /// Uses the limit up, and asks again when the instance runs next after the named time; of a single instance also a
    /// little before. No other request comes meanwhile.
    fn leased_retries(&mut self) -> Retries {
        let mut retries = Retries::default();
        for number in 0..RETRIED {
            for cost in RETRIED_COSTS {
                let key = self.use_up(number, cost);
                // One client from here on: requests that come all at once may have to wait for longer.
                self.world.run_for(Duration::from_millis(200));
                let Some((denied, wait)) = self.denied(key, cost) else {
                    continue;
                };
                let then = denied.answered_at + wait;
                let is_tried_early = self.instances == 1 && wait > EARLY;
                let early = is_tried_early && self.is_admitted_at(then - EARLY, key, cost);
                retries.add((self.is_admitted_at(then + TICK, key, cost), early));
            }
        }
        retries
    }

    /// Uses the limit up with requests of a cost, for a key that is returned.
    fn use_up(&mut self, number: u64, cost: u64) -> u32 {
        let key = u32::try_from(1_000_000 + 1_000 * number + cost).unwrap_or(0);
        // Not always at the same phase of a window.
        self.world.run_for(Duration::from_micros(61_911 * (number + 1)));
        for index in 0..self.limit.capacity() / cost {
            self.charge((index % self.instances) as usize, (key, cost));
        }
        self.world.run_for(Duration::from_millis(20));
        self.take();
        key
    }

    /// Asks the first instance until it denies, and for how long. None if it never does, or not soon: one request after
    /// the other cannot use up a limit that fills faster.
    fn denied(&mut self, key: u32, cost: u64) -> Option<(SimulatedDecision, Micros)> {
        for _ in 0..MOST_ASKED {
            self.charge(0, (key, cost));
            let last = self.next();
            match last.outcome.retry {
                Retry::Now => {}
                Retry::After(wait) => return Some((last, wait)),
                Retry::Never => return None,
            }
        }
        None
    }

    /// Whether the first instance admits a request at this time.
    fn is_admitted_at(&mut self, at: Timestamp, key: u32, cost: u64) -> bool {
        self.world.run_until(at.since(BEGIN).get());
        self.charge(0, (key, cost));
        self.next().outcome.allowed
    }

    /// The next decision, as soon as it is made.
    fn next(&mut self) -> SimulatedDecision {
        loop {
            self.world.run_for(Duration::from_micros(100));
            if let Some(decided) = self.take().pop() {
                return decided;
            }
        }
    }

    fn charge(&mut self, instance: usize, asked: (u32, u64)) {
        self.ask(instance, asked, None);
    }

    /// Charges at the time of Redis, or asks about another time and charges nothing.
    fn ask(&mut self, instance: usize, (key, cost): (u32, u64), at: Option<Timestamp>) {
        let store = self.world.gate(instance).expect("it runs").store().clone();
        let (scope, limit) = (self.scope.clone(), self.limit.clone());
        let (time, log) = (self.world.time(), Arc::clone(&self.decided));
        self.world.spawn(instance, async move {
            let name = key.to_string();
            let charges = [Charge {
                scope: &scope,
                limit: &limit,
                key: &name,
                cost,
            }];
            let asked_at = BEGIN + Micros::new(time.now());
            let outcomes = match at {
                Some(at) => store.peek(&Request::new(&charges).at(at)).await,
                None => store.charge(&Request::new(&charges)).await,
            };
            let outcome = outcomes.expect("Redis answers")[0];
            // An outcome of before the request comes from a lease, or from a denial that is remembered.
            let is_of_redis = outcome.at >= asked_at;
            let answered_at = BEGIN + Micros::new(time.now());
            let decided = SimulatedDecision {
                at: if is_of_redis { outcome.at } else { answered_at },
                answered_at,
                key,
                outcome,
            };
            log.lock().expect("no panic").push(decided);
        });
    }

    fn take(&self) -> Vec<SimulatedDecision> {
        std::mem::take(&mut *self.decided.lock().expect("no panic"))
    }
}
