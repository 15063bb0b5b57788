//! What one step meets is no concern of the others.

use tidegate_core::{Algorithm, Rate};
use tidegate_testkit::conformance::limits_of;

use super::*;

/// The code of a step's failure.
fn code(answer: &Result<Answer, StepError>) -> &str {
    match answer {
        Ok(_) => "none",
        Err(error) => error.code(),
    }
}

#[test]
fn a_key_of_another_type_fails_its_own_step_only() {
    let mut server = Server::start();
    let scope = Scope::new("types");
    for limit in limits_of(5) {
        let (bad, good) = (
            [charging(&scope, &limit, "bad", 1)],
            [charging(&scope, &limit, "good", 1)],
        );
        let name = keys().state(&scope, &limit, "bad");
        let () = server.say(&["RPUSH", &name, "foreign"]);
        let both = [good[0], bad[0]];
        let lease = LeaseId::from_u128(7);
        let steps = [&good[..], &bad[..], &both[..], &good[..]]
            .map(|charges| Step::charge(&keys(), &Request::new(charges).under(lease)));
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
    let mut server = Server::start();
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
            let bad = Step::charge(&keys(), &Request::new(&charges));
            let good = Step::charge(&keys(), &Request::new(&other[..]));
            let answers = server.run(&[&bad, &good]);
            assert_eq!(code(&answers[0]), "UNREADABLE", "{text}");
            assert_eq!(code(&answers[1]), "none");
            let forget = Step::forget(&keys(), &scope, &limit, "other");
            assert_eq!(server.ask(&forget), Ok(Answer::Done));
        }
    }
    let log = Limit::new(rate, Algorithm::SlidingWindowLog).unwrap();
    let slots = Limit::new(rate, Algorithm::SLIDING_WINDOW_SLOTS).unwrap();
    let concurrency = Limit::concurrent(5).unwrap();
    let () = server.say(&["ZADD", &keys().state(&scope, &log, "key"), "5", "foreign"]);
    let () = server.say(&["HSET", &keys().state(&scope, &slots, "key"), "at", "x"]);
    let state = keys().state(&scope, &concurrency, "key");
    let () = server.say(&["HSET", &Keys::companion(&state), "at", "x"]);
    for limit in [log, slots, concurrency] {
        let charges = [charging(&scope, &limit, "key", 1)];
        let step = Step::charge(
            &keys(),
            &Request::new(&charges).under(LeaseId::from_u128(1)),
        );
        assert_eq!(code(&server.ask(&step)), "UNREADABLE");
    }
}

#[test]
fn what_redis_says_to_the_first_write_is_told() {
    let mut server = Server::start();
    let scope = Scope::new("memory");
    let limit = limit("5/hour");
    let charges = [charging(&scope, &limit, "key", 1)];
    let charge = Step::charge(&keys(), &Request::new(&charges));
    let peek = Step::peek(&keys(), &Request::new(&charges));
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
    let mut server = Server::start();
    let scope = Scope::new("unleasable");
    let log = Limit::new(Rate::per_hour(5), Algorithm::SlidingWindowLog).unwrap();
    for limit in [log, Limit::concurrent(5).unwrap()] {
        let charge = charging(&scope, &limit, "key", 1);
        let want = Want {
            id: LeaseId::from_u128(1),
            units: 3,
            lasts: Micros::SECOND,
            previous: None,
        };
        let answer = server.ask(&Step::lease(&keys(), &charge, want, None));
        assert_eq!(code(&answer), "UNLEASABLE");
        let kept: u64 = server.say(&["DBSIZE"]);
        assert_eq!(kept, 0);
    }
}
