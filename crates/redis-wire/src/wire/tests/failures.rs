//! What one step meets is no concern of the others.

use tidegate_core::{Algorithm, Rate};
use tidegate_testkit::conformance::limits_of;

use super::*;
use tidegate_core::algorithm::Form;

/// The code of a step's failure.
fn code(answer: &Result<StepOutcome, StepError>) -> &str {
    match answer {
        Ok(_) => "none",
        Err(error) => error.code(),
    }
}

#[test]
fn a_key_of_another_type_fails_its_own_step_only() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("types");
    for limit in limits_of(5) {
        let (bad, good) = (
            [charging(&scope, &limit, "bad", 1)],
            [charging(&scope, &limit, "good", 1)],
        );
        let name = keys().state(&scope, &limit, "bad");
        let () = server.say(&["RPUSH", &name, "foreign"]);
        let both = [good[0], bad[0]];
        let lease = PermitId::from_u128(7);
        let steps = [&good[..], &bad[..], &both[..], &good[..]]
            .map(|charges| LuaStep::charge(&keys(), &plan(&Request::new(charges).under(lease))));
        let answers = server.run(&steps.each_ref());
        assert_eq!(
            [0, 1, 2, 3].map(|index| code(&answers[index])),
            ["none", "WRONGTYPE", "WRONGTYPE", "none"]
        );
        let last = outcomes(answers[3].clone())[0];
        assert_eq!(
            last.remaining,
            3,
            "{}: the step of both charged neither",
            limit.algorithm().name()
        );
        let kind: String = server.say(&["TYPE", &name]);
        assert_eq!(kind, "list");
    }
}

#[test]
fn an_unreadable_value_fails_its_own_step_only() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("values");
    let rate = Rate::per_hour(5);
    let texts = [
        "",
        "7",
        "debt=1",
        "debt=-1 part=0 at=5",
        "debt=1 part=0 at=5 lease=",
        "debt=1 part=3600000000 at=5",
        "debt=99999999999999999999 part=0 at=5",
        "opened=1 at=2 used=x",
        "at=1 current=2 previous=3 more",
        "debt=1 part=0 at=5 lease=zz:1:2",
    ];
    for algorithm in [
        Algorithm::TOKEN_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindowCounter,
    ] {
        let limit = Limit::new(rate, algorithm).unwrap();
        let charges = [charging(&scope, &limit, "key", 1)];
        let other = [charging(&scope, &limit, "other", 1)];
        for text in texts {
            let () = server.say(&["SET", &keys().state(&scope, &limit, "key"), text]);
            let bad = LuaStep::charge(&keys(), &plan(&Request::new(&charges)));
            let good = LuaStep::charge(&keys(), &plan(&Request::new(&other[..])));
            let answers = server.run(&[&bad, &good]);
            assert_eq!(code(&answers[0]), "UNREADABLE", "{text}");
            assert_eq!(code(&answers[1]), "none");
            let forgotten = [charging(&scope, &limit, "other", 0)];
            let forget = LuaStep::forget(&plan(&Request::new(&forgotten)));
            assert_eq!(server.ask(&forget), Ok(StepOutcome::Done));
        }
    }
    let log = Limit::new(rate, Algorithm::SlidingWindowLog).unwrap();
    let slots = Limit::new(rate, Algorithm::SLIDING_WINDOW_SLOTS).unwrap();
    let concurrency = Limit::concurrent(5).unwrap();
    let () = server.say(&["ZADD", &keys().state(&scope, &log, "key"), "5", "foreign"]);
    let () = server.say(&["HSET", &keys().state(&scope, &slots, "key"), "at", "x"]);
    let state = keys().state(&scope, &concurrency, "key");
    let () = server.say(&["HSET", &RedisKeys::companion(&state), "at", "x"]);
    for limit in [log, slots, concurrency] {
        let charges = [charging(&scope, &limit, "key", 1)];
        let step = LuaStep::charge(
            &keys(),
            &plan(&Request::new(&charges).under(PermitId::from_u128(1))),
        );
        assert_eq!(code(&server.ask(&step)), "UNREADABLE");
    }
}

#[test]
fn an_error_of_the_first_write_is_returned() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("memory");
    let limit = limit("5/hour");
    let charges = [charging(&scope, &limit, "key", 1)];
    let charge = LuaStep::charge(&keys(), &plan(&Request::new(&charges)));
    let peek = LuaStep::peek(&plan(&Request::new(&charges)));
    let () = server.say(&["CONFIG", "SET", "maxmemory", "1"]);
    let answers = server.run(&[&charge, &peek]);
    assert_eq!((code(&answers[0]), code(&answers[1])), ("OOM", "none"));
    assert_eq!(
        outcomes(answers[1].clone())[0].remaining,
        5,
        "nothing was taken"
    );
    let () = server.say(&["CONFIG", "SET", "maxmemory", "0"]);

    let () = server.say(&["REPLICAOF", "127.0.0.1", "1"]);
    let answers = server.run(&[&charge, &peek]);
    assert_eq!((code(&answers[0]), code(&answers[1])), ("READONLY", "none"));
}

#[test]
fn what_cannot_be_taken_in_advance_is_not_taken() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("unleasable");
    let log = Limit::new(Rate::per_hour(5), Algorithm::SlidingWindowLog).unwrap();
    for limit in [log, Limit::concurrent(5).unwrap()] {
        let charge = charging(&scope, &limit, "key", 1);
        let want = LeaseRequest {
            id: PermitId::from_u128(1),
            units: 3,
            lasts: Micros::SECOND,
            previous: None,
        };
        let answer = server.ask(&LuaStep::lease(&plan_at(&charge, None), want));
        assert_eq!(code(&answer), "UNLEASABLE");
        let kept: u64 = server.say(&["DBSIZE"]);
        assert_eq!(kept, 0);
    }
}

/// Numbers that no version writes, in every field that is read on its own.
#[test]
fn numbers_that_no_state_has_are_refused() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("numbers");
    let (rate, lease) = (Rate::per_hour(5), PermitId::from_u128(1));
    let log = Limit::new(rate, Algorithm::SlidingWindowLog).unwrap();
    let slots = Limit::new(rate, Algorithm::SLIDING_WINDOW_SLOTS).unwrap();
    let permits = Limit::concurrent(5).unwrap();
    let name = |limit| keys().state(&scope, limit, "key");
    let companion = RedisKeys::companion(&name(&permits));
    let numbers = [
        "-1",
        "-100",
        "-1.5",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "1e3",
        "0x10",
        "",
        "99999999999999999999",
    ];
    for number in numbers {
        let expected = if number.starts_with('-') {
            "NEGATIVE"
        } else {
            "UNREADABLE"
        };
        for (limit, key, before, field) in [
            (&slots, name(&slots), None, "at"),
            (&slots, name(&slots), None, "29911680"),
            (&permits, companion.clone(), None, "at"),
            (&permits, companion.clone(), Some(name(&permits)), "held"),
        ] {
            let () = server.say(&["FLUSHALL"]);
            if let Some(set) = before {
                let () = server.say(&["ZADD", &set, "9000000000000000", "a"]);
            }
            let () = server.say(&["HSET", &key, field, number]);
            let charges = [charging(&scope, limit, "key", 1)];
            let charge = LuaStep::charge(&keys(), &plan(&Request::new(&charges).under(lease)));
            let answers = server.run(&[&charge, &charge]);
            assert_eq!(code(&answers[0]), expected, "{field} {number}");
            assert_eq!(code(&answers[1]), expected, "nothing was changed");
            let healed = server.ask(&LuaStep::heal(&plan(&Request::new(&charges))));
            let repairs = expected == "NEGATIVE";
            let found = if repairs {
                Finding::Negative
            } else {
                Finding::Nothing
            };
            assert_eq!(
                healed,
                Ok(StepOutcome::Healed(vec![found])),
                "{field} {number}"
            );
            if repairs {
                let outcome = outcomes(server.ask(&charge))[0];
                assert!(
                    outcome.allowed && outcome.remaining <= 4,
                    "{field} {outcome:?}"
                );
            } else {
                assert_eq!(code(&server.ask(&charge)), "UNREADABLE", "it is left");
            }
        }
    }
    // A field that is no slot.
    for (field, expected) in [
        ("-5", "NEGATIVE"),
        ("1.5", "UNREADABLE"),
        ("nan", "UNREADABLE"),
    ] {
        let () = server.say(&["FLUSHALL"]);
        let () = server.say(&["HSET", &name(&slots), field, "1"]);
        let charges = [charging(&scope, &slots, "key", 1)];
        let charge = LuaStep::charge(&keys(), &plan(&Request::new(&charges)));
        assert_eq!(code(&server.ask(&charge)), expected, "{field}");
    }
    for score in ["-5", "1.5", "inf", "-inf"] {
        let () = server.say(&["FLUSHALL"]);
        let () = server.say(&["ZADD", &name(&log), score, "0000000000000003:3"]);
        let charges = [charging(&scope, &log, "key", 1)];
        let charge = LuaStep::charge(&keys(), &plan(&Request::new(&charges)));
        assert_eq!(code(&server.ask(&charge)), "UNREADABLE", "{score}");
    }
}

#[test]
fn a_wrong_count_of_permits_is_added_up_again() {
    let mut server = ScriptServer::start();
    let (scope, limit) = (Scope::new("held"), Limit::concurrent(9).unwrap());
    for lease in 1..=2 {
        let charges = [charging(&scope, &limit, "key", 3)];
        let request = Request::new(&charges).under(PermitId::from_u128(lease));
        outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&request))));
    }
    let companion = RedisKeys::companion(&keys().state(&scope, &limit, "key"));
    let () = server.say(&["HSET", &companion, "held", "0"]);
    let charges = [charging(&scope, &limit, "key", 1)];
    let peek = LuaStep::peek(&plan(&Request::new(&charges)));
    assert_eq!(code(&server.ask(&peek)), "NEGATIVE");
    let healed = server.ask(&LuaStep::heal(&plan(&Request::new(&charges))));
    assert_eq!(healed, Ok(StepOutcome::Healed(vec![Finding::Negative])));
    assert_eq!(outcomes(server.ask(&peek))[0].remaining, 3);
}

#[test]
fn only_keys_of_a_type_that_no_version_uses_are_removed() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("types");
    for limit in limits_of(5) {
        let name = keys().state(&scope, &limit, "key");
        let charges = [charging(&scope, &limit, "key", 1)];
        let heal = LuaStep::heal(&plan(&Request::new(&charges)));
        let plants: [&[&str]; 5] = [
            &["SET", &name, "text"],
            &["HSET", &name, "field", "text"],
            &["ZADD", &name, "1", "text"],
            &["RPUSH", &name, "text"],
            &["SADD", &name, "text"],
        ];
        let mut kept = Vec::new();
        for plant in plants {
            let () = server.say(&["FLUSHALL"]);
            let () = server.say(plant);
            let healed = server.ask(&heal).unwrap();
            let exists: u64 = server.say(&["EXISTS", &name]);
            let found = if exists == 1 {
                Finding::Nothing
            } else {
                Finding::Foreign
            };
            assert_eq!(healed, StepOutcome::Healed(vec![found]));
            if exists == 1 {
                kept.push(plant[0]);
            }
        }
        let own = match limit.form() {
            Form::SlidingSlots(_) => "HSET",
            Form::SlidingLog(_) | Form::Concurrency(_) => "ZADD",
            _ => "SET",
        };
        assert_eq!(kept, [own], "{}", limit.algorithm().name());
    }
}
