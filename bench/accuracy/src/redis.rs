//! Instances on a real Redis server. Each request brings its time, so Redis decides in virtual time, too: a check that
//! the simulated server decides as the real one does.

use std::time::Duration;

use tidegate_core::{Algorithm, Charge, Request, Retry, Scope, RemoteStore as _, Timestamp};
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::accuracy::{
    ArrivalPattern, DecidedArrival, Judge, RETRIED_COSTS, all_algorithms,
};
use tidegate_testkit::redis::RedisServer;
use tokio::runtime::{Builder, Runtime};

use crate::row::{Contender, Retries, row};
use crate::scenario::Scenario;

const INSTANCES: u64 = 2;
/// Windows of a run: each request is a call to Redis.
const WINDOWS: u64 = 4;

/// One denial in so many is tried again.
const RETRIED_OF: u64 = 10;

pub fn run() {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let server = RedisServer::start();
    let stores: Vec<RedisStore> = (0..INSTANCES).map(|_| open(&runtime, &server)).collect();
    let is_short = |scenario: &Scenario| {
        let is_full = ArrivalPattern::Poisson { percent: 200 };
        let patterns = [is_full, ArrivalPattern::OnOff, ArrivalPattern::WindowEdge];
        patterns.contains(&scenario.plan.pattern)
    };
    for mut scenario in Scenario::all().into_iter().filter(is_short) {
        scenario.plan.windows = WINDOWS;
        for algorithm in all_algorithms() {
            run_one(&runtime, &stores, &scenario, algorithm);
        }
    }
}

fn open(runtime: &Runtime, server: &RedisServer) -> RedisStore {
    runtime.block_on(async {
        let mut settings = RedisSettings::new(server.url().parse().expect("a URL"));
        settings.deadline = Duration::from_secs(10);
        settings.key_secret = Some(b"accuracy".to_vec());
        let store = RedisStore::open(settings);
        let connected = store.connected(Duration::from_secs(10)).await;
        connected.expect("Redis answers");
        store
    })
}

fn run_one(runtime: &Runtime, stores: &[RedisStore], scenario: &Scenario, algorithm: Algorithm) {
    let limit = scenario.limit(algorithm);
    let scope = Scope::new(&scenario.name);
    let mut judge = Judge::new(&limit).expect("a rate with a window");
    let (mut denied, mut retries) = (0_u64, Retries::default());
    let arrivals = scenario.arrivals();
    let instance_of = scenario.instances(arrivals.len(), INSTANCES);
    for (arrival, instance) in arrivals.into_iter().zip(instance_of) {
        let key = format!("{algorithm:?} {}", arrival.key);
        let charges = [Charge {
            scope: &scope,
            limit: &limit,
            key: &key,
            cost: 1,
        }];
        let request = Request::new(&charges).at(arrival.at);
        let outcomes = runtime.block_on(stores[instance].charge(&request));
        let outcome = outcomes.expect("Redis answers")[0];
        judge.take(DecidedArrival::new(arrival.at, arrival.key, &outcome));
        if outcome.allowed {
            continue;
        }
        denied += 1;
        if denied % RETRIED_OF == 1 {
            for cost in RETRIED_COSTS {
                let charges = [Charge { cost, ..charges[0] }];
                let peek = |at| {
                    let request = Request::new(&charges).at(at);
                    let asked = runtime.block_on(stores[instance].peek(&request));
                    asked.expect("Redis answers")[0]
                };
                let Retry::After(wait) = peek(arrival.at).retry else {
                    continue;
                };
                let then = arrival.at + wait;
                let before = Timestamp::from_micros(then.as_micros() - 1);
                retries.add((peek(then).allowed, peek(before).allowed));
            }
        }
    }
    let contender = Contender {
        name: "tidegate",
        store: "real",
        instances: INSTANCES,
        is_virtual: true,
    };
    println!("{}", row(scenario, &contender, &limit, &judge.finish(), Some(retries)));
}
