//! Limits that take over each other's state whatever their windows: the same answers as from memory.

use tidegate_core::{MemoryStore, Micros};
use tidegate_testkit::timeline::START;

use super::random::RandomSteps;
use super::*;

fn cells() -> Vec<Limit> {
    let seconds = Micros::from_seconds;
    let windows = [1, 7, 60, 61, 3_600, 86_400, 1_234_567].map(seconds);
    let longest = Micros::DAY.times(366);
    let of = |window| [(3, 5), (30, 16), (1_000_003, 100)].map(|numbers| (window, numbers));
    let all = windows.into_iter().chain([longest]).flat_map(of);
    all.map(|(window, (count, burst))| Limit::portable_bucket(count, window, burst).unwrap())
        .collect()
}

#[test]
fn limits_of_one_key_are_answered_as_from_memory() {
    let mut server = ScriptServer::start();
    let (memory, scope, limits) = (MemoryStore::new(), Scope::new("cells"), cells());
    let mut random = RandomSteps(0x6365_6c6c);
    let mut now = START;
    let mut denied = 0;
    for step in 0..5_000 {
        // Most of the time one limit goes on; the pauses fit some of the windows.
        let limit = &limits[usize::try_from(random.below(step / 50 % 24 + 1)).unwrap()];
        let pause = 1 << random.below(34);
        now = now + Micros::new(random.below(pause));
        let key = *random.one_of(&["one", "two"]);
        let charge = [charging(&scope, limit, key, random.below(6))];
        let request = Request::new(&charge).at(now);
        let wanted = memory.charge(&request);
        let answer = outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&request))));
        assert_eq!(answer, wanted, "step {step}: {limit} {}", charge[0].cost);
        denied += u32::from(!answer[0].allowed);
    }
    assert!((300..4_700).contains(&denied), "{denied}");
}

#[test]
fn a_key_has_one_state_whatever_the_numbers() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("cl.throttle");
    let slow = Limit::portable_bucket(1, Micros::HOUR, 10).unwrap();
    let fast = Limit::portable_bucket(1, Micros::from_seconds(7), 10).unwrap();
    let mut remaining = Vec::new();
    for limit in [&slow, &fast, &slow] {
        let charge = [charging(&scope, limit, "a", 2)];
        let request = Request::new(&charge).at(START);
        remaining
            .push(outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&request))))[0].remaining);
    }
    assert_eq!(remaining, [8, 6, 4]);
    let names: Vec<String> = server.say(&["KEYS", "*"]);
    assert_eq!(names, ["tg:{a}:cl.throttle:cell"]);
}
