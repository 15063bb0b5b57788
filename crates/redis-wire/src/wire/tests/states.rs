//! What is kept in Redis, for how long, and leases by the clock of Redis.

use tidegate_core::Rate;
use tidegate_core::algorithm::Form;
use tidegate_testkit::conformance::limits_of;
use tidegate_testkit::timeline::START;

use super::*;
use tidegate_core::Algorithm;

#[test]
fn states_are_readable() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("read");
    let mut limits = limits_of(5);
    limits.retain(|limit| !matches!(limit.form(), Form::Concurrency(_)));
    for limit in &limits {
        let charges = [charging(&scope, limit, "key", 3)];
        let request = Request::new(&charges).at(START + Micros::SECOND);
        outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&request))));
    }
    let mut texts = Vec::new();
    for limit in &limits {
        let name = keys().state(&scope, limit, "key");
        let kind: String = server.say(&["TYPE", &name]);
        texts.push(match kind.as_str() {
            "string" => server.say(&["GET", &name]),
            "hash" => server.say::<Vec<String>>(&["HGETALL", &name]).join(" "),
            _ => server
                .say::<Vec<String>>(&["ZRANGE", &name, "0", "-1", "WITHSCORES"])
                .join(" "),
        });
    }
    let slots = "at 1794700801000000 29911680 3";
    assert_eq!(
        texts,
        [
            "opened=1794700800000000 at=1794700801000000 used=3",
            "opened=1794700801000000 at=1794700801000000 used=3",
            "0000000000000003:3 1794700801000000",
            "at=1794700801000000 current=3 previous=0",
            slots,
            slots,
            "debt=3 part=0 at=1794700801000000",
            "debt=3 part=0 at=1794700801000000",
        ]
    );
}

#[test]
fn a_key_goes_a_millisecond_after_it_is_like_fresh() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("ttl");
    for limit in limits_of(5) {
        let charges = [charging(&scope, &limit, "key", 1)];
        let request = Request::new(&charges).under(PermitId::from_u128(3));
        let outcome = outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&request))))[0];
        let name = keys().state(&scope, &limit, "key");
        let expires: u64 = server.say(&["PEXPIRETIME", &name]);
        let wanted = outcome.reset_at.as_micros().div_ceil(1_000) + 1;
        assert_eq!(expires, wanted, "{}", limit.algorithm().name());

        let supplied = [charging(&scope, &limit, "supplied", 1)];
        let request = Request::new(&supplied)
            .at(START)
            .under(PermitId::from_u128(4));
        outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&request))));
        let left: u64 = server.say(&["PTTL", &keys().state(&scope, &limit, "supplied")]);
        assert!((86_000_000..=86_400_000).contains(&left));
    }
}

#[test]
fn what_is_not_used_is_not_kept() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("fresh");
    for limit in limits_of(5) {
        for cost in [0, 6, 1] {
            let charges = [charging(&scope, &limit, "key", cost)];
            let request = Request::new(&charges).under(PermitId::from_u128(5));
            let outcomes = outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&request))));
            server.ask(&LuaStep::peek(&plan(&request))).unwrap();
            if cost == 1 {
                let back = LuaStep::give_back(&keys(), &plan(&request), &outcomes).unwrap();
                server.ask(&back).unwrap();
            }
        }
        if limit.algorithm().is_bucket() {
            let kept: u64 = server.say(&["EXISTS", &keys().state(&scope, &limit, "key")]);
            assert_eq!(kept, 0, "{}", limit.algorithm().name());
        }
    }
}

#[test]
fn a_lowered_limit_is_remembered_for_longer() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("lowered");
    let bucket =
        |count: u64| Limit::new(Rate::per_hour(count).burst(10), Algorithm::TOKEN_BUCKET).unwrap();
    let (fast, slow) = (bucket(10), bucket(1));
    let charge = |server: &mut ScriptServer, limit: &Limit, cost: u64| {
        let charges = [charging(&scope, limit, "key", cost)];
        outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&Request::new(&charges)))))[0]
    };
    charge(&mut server, &fast, 10);
    let denied = charge(&mut server, &slow, 10);
    assert!(!denied.allowed);
    let expires: u64 = server.say(&["PEXPIRETIME", &keys().state(&scope, &slow, "key")]);
    let wanted = denied.reset_at.as_micros().div_ceil(1_000) + 1;
    assert_eq!(expires, wanted);
}

#[test]
fn a_lease_is_released_once_by_its_name_alone() {
    let mut server = ScriptServer::start();
    let (one, two) = (Scope::new("one"), Scope::new("two"));
    let (few, many) = (Limit::concurrent(1).unwrap(), Limit::concurrent(5).unwrap());
    let charges = [
        charging(&one, &few, "user", 1),
        charging(&two, &many, "user", 2),
    ];
    let lease = RedisKeys::permit_for(&keys().state(&one, &few, "user"), PermitId::random());
    let request = Request::new(&charges).under(lease);
    let step = LuaStep::charge(&keys(), &plan(&request));
    let slots: Vec<_> = step.keys().map(slot_of).collect();
    assert!(slots.iter().all(|slot| *slot == step.slot()), "{slots:?}");
    let taken = outcomes(server.ask(&step));
    assert!(taken.iter().all(|outcome| outcome.allowed));
    let other = Request::new(&charges).under(PermitId::from_u128(9));
    assert!(!outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&other))))[0].allowed);
    let expires: u64 = server.say(&["PEXPIRETIME", &keys().register(lease)]);
    assert_eq!(expires, taken[0].reset_at.as_micros().div_ceil(1_000) + 1);

    assert!(was_live(server.ask(&LuaStep::renew(&keys(), lease))));
    assert!(was_live(server.ask(&LuaStep::release(&keys(), lease))));
    assert!(!was_live(server.ask(&LuaStep::release(&keys(), lease))));
    assert!(!was_live(server.ask(&LuaStep::renew(&keys(), lease))));
    let free = outcomes(server.ask(&LuaStep::peek(&plan(&other))));
    assert_eq!((free[0].remaining, free[1].remaining), (1, 5));
    let unknown = PermitId::from_u128(u128::MAX);
    assert!(!was_live(server.ask(&LuaStep::release(&keys(), unknown))));
}

#[test]
fn what_a_lease_holds_in_other_slots_is_named() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("far");
    let limit = Limit::concurrent(2).unwrap();
    let (here, there) = (
        [charging(&scope, &limit, "here", 1)],
        [charging(&scope, &limit, "there", 1)],
    );
    let lease = RedisKeys::permit_for(&keys().state(&scope, &limit, "here"), PermitId::random());
    let there = plan(&Request::new(&there).under(lease));
    let far = LuaStep::charge(&keys(), &there).registered_elsewhere();
    let held = there.permits();
    let near =
        LuaStep::charge(&keys(), &plan(&Request::new(&here).under(lease))).also_held(held.clone());
    assert!(server.run(&[&far, &near]).iter().all(Result::is_ok));

    for (first, second) in [
        (
            LuaStep::renew(&keys(), lease),
            LuaStep::renew_there as fn(&str, PermitId) -> LuaStep,
        ),
        (LuaStep::release(&keys(), lease), LuaStep::release_there),
    ] {
        let Ok(StepOutcome::Held {
            was_live: true,
            there,
        }) = server.ask(&first)
        else {
            panic!("the lease is live here");
        };
        assert_eq!(there, [held[0].0.to_string()]);
        assert!(was_live(server.ask(&second(&held[0].0, lease))));
    }
    assert!(!was_live(
        server.ask(&LuaStep::release_there(&held[0].0, lease))
    ));

    let register = LuaStep::register(&keys(), lease, None, held);
    assert_eq!(server.ask(&register), Ok(StepOutcome::Done));
    let answer = server.ask(&LuaStep::release(&keys(), lease)).unwrap();
    assert!(matches!(answer, StepOutcome::Held { was_live: false, there } if there.len() == 1));
}
