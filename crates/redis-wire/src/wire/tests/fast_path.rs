//! The fast path of the script against the general one: the same steps at the same time, the same
//! answers, the same states.

use std::cell::{Cell, RefCell};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_core::{Algorithm, Anchor, Rate};

use super::*;

/// When two keys expire, seen at one instant.
const EXPIRE: &str =
    "return {redis.call('PEXPIRETIME', KEYS[1]), redis.call('PEXPIRETIME', KEYS[2])}";

fn limits() -> Vec<Limit> {
    let fast = Rate::per_second(20_000).burst(7);
    let buckets = [fast, Rate::per_hour(9), Rate::per_second(3).burst(1_000)];
    let windows = [Rate::per_minute(9), Rate::per_hour(100_000)];
    let from_first = Algorithm::FixedWindow {
        anchor: Anchor::FirstRequest,
    };
    let of = |rate: &Rate, algorithm| Limit::new(*rate, algorithm).unwrap();
    let buckets = buckets.iter().map(|rate| of(rate, Algorithm::TOKEN_BUCKET));
    let windows = windows.iter().flat_map(|rate| {
        [Algorithm::FIXED_WINDOW, from_first].map(|algorithm| of(rate, algorithm))
    });
    let cells = [(20_000, Micros::SECOND, 7), (3, Micros::from_seconds(7), 5)];
    let cells =
        cells.map(|(count, window, burst)| Limit::portable_bucket(count, window, burst).unwrap());
    buckets.chain(windows).chain(cells).collect()
}

#[test]
fn the_fast_path_decides_like_the_general_one() {
    let mut server = ScriptServer::start();
    let (short, long) = (Scope::new("short"), Scope::new("long"));
    let never_denies = limit("1000000000/hour");
    let limits = limits();
    // Calls of some charges each, of a limit and a cost.
    let charges = prop::collection::vec((0..limits.len(), 0..4_u64), 1..12);
    let calls = prop::collection::vec(charges, 1..12);
    let mut runner = TestRunner::new(Config::with_cases(60));
    let round = Cell::new(0);
    let server = RefCell::new(&mut server);
    let ran = runner.run(&calls, |calls| {
        round.set(round.get() + 1);
        let mut server = server.borrow_mut();
        // Keys of this round's own.
        let name = |which: usize| format!("{}:{which}", round.get());
        for charges in &calls {
            let mut steps = Vec::new();
            for (which, cost) in charges {
                let (limit, key) = (&limits[*which], name(*which));
                let alone = [charging(&short, limit, &key, *cost)];
                // A second charge takes it off the fast path.
                let in_addition = [
                    charging(&long, limit, &key, *cost),
                    charging(&long, &never_denies, "in_addition", 0),
                ];
                steps.push(LuaStep::charge(&keys(), &plan(&Request::new(&alone))));
                steps.push(LuaStep::charge(&keys(), &plan(&Request::new(&in_addition))));
            }
            // The time is the same for all steps of a call.
            let answers = server.run(&steps.iter().collect::<Vec<_>>());
            for (pair, charge) in answers.chunks(2).zip(charges) {
                let (short, long) = (outcomes(pair[0].clone()), outcomes(pair[1].clone()));
                prop_assert_eq!(short[0], long[0], "{:?}", charge);
            }
        }
        for (which, limit) in limits.iter().enumerate() {
            let names = [&short, &long].map(|scope| keys().state(scope, limit, &name(which)));
            let texts: [Option<String>; 2] = server.say(&["MGET", &names[0], &names[1]]);
            prop_assert_eq!(&texts[0], &texts[1]);
            let expires: [i64; 2] = server.say(&["EVAL", EXPIRE, "2", &names[0], &names[1]]);
            prop_assert_eq!(expires[0], expires[1]);
        }
        Ok(())
    });
    ran.unwrap();
}
