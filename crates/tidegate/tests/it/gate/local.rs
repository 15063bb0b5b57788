//! `on_store_failure: local`: what one instance grants by itself, and what the store hears of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{FailingGate, NOW, decide, decide_with_receipt, request, rules};
use tidegate::gate::Decision;
use tidegate::headers::HeaderSettings;
use tidegate::{Clock, Gate, ManualClock, MemoryStore, Micros, Timestamp, TokioClock};
use tidegate_testkit::block_on;
use tidegate_testkit::{FailingStore, StoreState};

const WINDOW: &str = "- {id: r, per: [user_id], limit: 10/minute, algorithm: fixed_window}";
const BUCKET: &str = "- {id: r, per: [user_id], limit: 10/minute}";

/// Every way to count requests.
const COUNTING: [&str; 6] = [
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
    "sliding_window_slots",
    "token_bucket",
    "leaky_bucket, shape: false",
];

fn gate(list: &str) -> FailingGate {
    FailingGate::new(FailingStore::default(), rules(list))
}

/// A gate and its store on a clock that the test moves.
fn clocked(list: &str) -> (FailingGate, ManualClock) {
    let clock = ManualClock::new(NOW);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let store = FailingStore::over(Arc::new(store));
    (
        FailingGate::with_clock(store, rules(list), clock.clone()),
        clock,
    )
}

/// How many of so many requests of one user are allowed.
fn admitted(gate: &Gate, asked: usize, at: Option<Timestamp>) -> u64 {
    let allowed = (0..asked).filter(|_| {
        let mut attributes = tidegate::Attributes::new();
        attributes.insert("user_id", "u").unwrap();
        if let Some(at) = at {
            attributes = attributes.at(at);
        }
        decide(gate, &attributes).is_allowed()
    });
    allowed.count() as u64
}

#[test]
fn an_instance_alone_grants_its_share() {
    #[rustfmt::skip]
    let table = [
        // limit                                        config  known   share   allowed
        ("10/minute",                                   1,      0,      10,     10),
        ("10/minute",                                   3,      0,      3,      3),
        ("10/minute",                                   3,      2,      3,      3),
        ("10/minute",                                   2,      3,      3,      3),
        ("10/minute",                                   0,      0,      10,     10),
        ("10/minute",                                   1,      99,     1,      1),
        ("10/minute burst 4",                           2,      0,      2,      2),
        ("10/minute, algorithm: fixed_window",          4,      0,      2,      2),
        ("10/minute, algorithm: sliding_window_log",    4,      0,      2,      2),
        ("7, algorithm: concurrency",                   2,      0,      3,      3),
    ];
    for (limit, configured, known, share, allowed) in table {
        let list = format!("- {{id: r, per: [user_id], limit: {limit}}}");
        let gate = gate(&list).with_instances(configured);
        gate.store().instances.store(known, Ordering::Relaxed);
        gate.store().switch(StoreState::Unreachable);
        let first = decide(&gate, &request("user_id=u"));
        let outcome = first.headline().unwrap().outcome;
        assert_eq!(
            (outcome.limit, outcome.remaining),
            (share, share - 1),
            "{limit}"
        );
        assert_eq!(1 + admitted(&gate, 20, Some(NOW)), allowed, "{limit}");
        let mut headers = first.headers(&HeaderSettings::default());
        let policy = headers
            .find(|(name, _)| *name == "ratelimit-policy")
            .unwrap();
        assert!(policy.1.contains(&format!(";q={share};")), "{policy:?}");
    }
}

#[test]
fn many_instances_without_a_store_stay_within_the_limit() {
    for algorithm in COUNTING {
        for (limit, instances) in [(10, 3), (10, 10), (10, 11), (1, 4), (100, 7)] {
            let list = format!(
                "- {{id: r, per: [user_id], limit: {limit}/minute, algorithm: {algorithm}}}"
            );
            let gates = (0..instances).map(|_| gate(&list).with_instances(instances));
            let all: u64 = gates
                .map(|gate| {
                    gate.store().switch(StoreState::Unreachable);
                    admitted(&gate, 120, Some(NOW))
                })
                .sum();
            assert!(
                all <= limit.max(instances),
                "{algorithm}: {all} of {limit} by {instances}"
            );
            assert!(all >= limit / instances * instances, "{algorithm}: {all}");
        }
    }
}

#[test]
fn another_number_of_instances_keeps_what_was_used() {
    let gate = gate(WINDOW);
    gate.store().switch(StoreState::Unreachable);
    let instances = |known| gate.store().instances.store(known, Ordering::Relaxed);
    instances(2);
    assert_eq!(admitted(&gate, 4, Some(NOW)), 4);
    instances(3);
    assert_eq!(admitted(&gate, 9, Some(NOW)), 0, "3 of 10, and 4 are used");
    instances(1);
    assert_eq!(admitted(&gate, 20, Some(NOW)), 6);
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    assert_eq!(gate.store().settled(), [("u".to_owned(), 10)]);
}

#[tokio::test(start_paused = true)]
async fn maintenance_reconciles_and_frees_the_memory_of_idle_counters() {
    let clock = tidegate::TokioClock::start();
    let store = MemoryStore::builder().clock(clock).build();
    let store = FailingStore::over(Arc::new(store));
    let shared = FailingGate::with_clock(store, rules(WINDOW), clock);
    shared.store().switch(StoreState::Unreachable);
    assert!(admitted(&shared, 20, None) > 0);
    assert!(shared.unreconciled().waiting > 0);
    shared.store().switch(StoreState::Up);
    let second = std::time::Duration::from_secs(1);
    assert!(
        tokio::time::timeout(second, shared.maintain())
            .await
            .is_err()
    );
    assert_eq!(shared.unreconciled().waiting, 0);

    let store = Arc::new(MemoryStore::builder().clock(clock).build());
    let alone = Gate::with_clock(Arc::clone(&store), rules(WINDOW), clock);
    assert!(admitted(&alone, 1, None) > 0);
    assert_eq!(store.stats().keys, 1);
    let two_hours = 7_200 * second;
    assert!(
        tokio::time::timeout(two_hours, alone.maintain())
            .await
            .is_err()
    );
    assert_eq!(store.stats().keys, 0);
}

#[test]
fn a_key_goes_on_with_its_share_of_what_the_store_last_said() {
    for algorithm in COUNTING {
        #[rustfmt::skip]
        let table = [
            // used of 10   instances   used here before    allowed
            (0,             2,          0,                  5),
            (1,             2,          0,                  4),
            (4,             2,          0,                  3),
            (4,             2,          1,                  3), // 1 here, raised to 2
            (4,             2,          4,                  1), // more than 2 is used here already
            (10,            2,          0,                  0),
            (99,            2,          0,                  0),
            (1,             10,         0,                  0),
        ];
        for (used, instances, before, allowed) in table {
            let list =
                format!("- {{id: r, per: [user_id], limit: 10/minute, algorithm: {algorithm}}}");
            let gate = gate(&list).with_instances(instances);
            gate.store().switch(StoreState::Unreachable);
            assert_eq!(admitted(&gate, before, Some(NOW)), before as u64);
            *gate.store().last_used.lock().unwrap() = Some(used);
            let name = format!("{algorithm}: {used} by {instances} after {before}");
            assert_eq!(admitted(&gate, 20, Some(NOW)), allowed, "{name}");
        }
    }
}

#[test]
fn who_is_denied_anyway_still_goes_on_with_what_the_store_said() {
    let gate = gate(&format!(
        "{WINDOW}\n- {{id: deny, match: {{attributes: {{z: '1'}}}}, per: [], limit: 1/s, on_store_failure: deny}}"
    ));
    gate.store().switch(StoreState::Unreachable);
    *gate.store().last_used.lock().unwrap() = Some(9);
    let decision = decide(&gate, &request("user_id=u z=1"));
    assert!(decision.is_failed());
    assert_eq!(decision.limits().next().unwrap().outcome.remaining, 1);
    assert_eq!(admitted(&gate, 5, Some(NOW)), 1);
}

#[test]
fn holders_are_not_raised_and_not_settled() {
    let gate = gate("- {id: r, per: [user_id], limit: 4, algorithm: concurrency}");
    gate.store().switch(StoreState::Unreachable);
    *gate.store().last_used.lock().unwrap() = Some(4);
    assert_eq!(admitted(&gate, 9, Some(NOW)), 4);
    assert_eq!(gate.unreconciled().waiting, 0);
}

#[test]
fn a_store_that_comes_and_goes_grants_nothing_twice() {
    for algorithm in COUNTING {
        let list = format!("- {{id: r, per: [user_id], limit: 10/minute, algorithm: {algorithm}}}");
        for remembers in [true, false] {
            let gate = gate(&list);
            gate.store().remembers.store(remembers, Ordering::Relaxed);
            let (mut alone, mut together) = (0, 0);
            for _ in 0..9 {
                gate.store().switch(StoreState::Unreachable);
                alone += admitted(&gate, 2, Some(NOW));
                gate.store().switch(StoreState::Up);
                together += admitted(&gate, 2, Some(NOW));
            }
            assert!(alone <= 10, "{algorithm}: {alone}");
            if remembers {
                assert_eq!(alone + together, 10, "{algorithm}");
            } else {
                assert!(
                    together < 10,
                    "{algorithm}: what was settled is not granted again"
                );
            }
        }
    }
}

#[test]
fn two_instances_hear_of_each_other_once_the_store_is_back() {
    let store = Arc::new(MemoryStore::new());
    let gates = [0, 1].map(|_| {
        let store = FailingStore::over(Arc::clone(&store));
        FailingGate::new(store, rules(WINDOW)).with_instances(2)
    });
    for gate in &gates {
        gate.store().switch(StoreState::Unreachable);
        assert_eq!(admitted(gate, 3, Some(NOW)), 3);
        gate.store().switch(StoreState::Up);
    }
    for gate in &gates {
        block_on(gate.reconcile());
        assert_eq!(gate.store().settled(), [("u".to_owned(), 3)]);
        assert_eq!(gate.unreconciled().waiting, 0);
    }
    assert_eq!(admitted(&gates[0], 9, Some(NOW)), 4);
}

#[test]
fn what_was_admitted_is_settled_once() {
    for by_request in [true, false] {
        let gate = gate(&format!(
            "{WINDOW}\n- {{id: s, mode: shadow, per: [], limit: 100/hour}}"
        ));
        let settle = || {
            if by_request {
                decide(&gate, &request("user_id=u").with_cost(0));
            } else {
                block_on(gate.reconcile());
            }
        };
        gate.store().switch(StoreState::Unreachable);
        assert_eq!(admitted(&gate, 3, Some(NOW)), 3);
        assert_eq!(gate.unreconciled().waiting, 2);
        settle();
        assert_eq!(gate.store().settled(), [], "the store did not get it");
        assert_eq!(gate.unreconciled().waiting, 2, "so it waits");
        gate.store().switch(StoreState::Up);
        settle();
        let mut settled = gate.store().settled();
        settled.sort();
        assert_eq!(settled, [(String::new(), 3), ("u".to_owned(), 3)]);
        settle();
        assert_eq!(gate.store().settled(), []);
        assert_eq!(admitted(&gate, 20, Some(NOW)), 7);
    }
}

/// After as long as one unit takes to flow back, but a second at most.
#[test]
fn a_store_without_room_for_what_is_owed_is_asked_again_after_a_while() {
    for (limit, wait) in [("10/minute", 1_000_000), ("240/minute", 250_000)] {
        let (gate, clock) = clocked(&format!("- {{id: r, per: [user_id], limit: {limit}}}"));
        assert!(
            admitted(&gate, 500, None) < 500,
            "the store has nothing left"
        );
        gate.store().switch(StoreState::Unreachable);
        assert_eq!(admitted(&gate, 4, None), 4);
        gate.store().switch(StoreState::Up);
        let is_asked = || {
            block_on(gate.reconcile());
            assert_eq!(gate.unreconciled().waiting, 1, "it is still owed");
            !gate.store().settled().is_empty()
        };
        assert!(is_asked());
        assert!(!is_asked());
        clock.advance(Micros::new(wait - 1));
        assert!(!is_asked(), "{limit}");
        clock.advance(Micros::new(1));
        assert!(is_asked(), "{limit}");
    }
}

#[test]
fn what_costs_nothing_or_is_given_back_is_not_owed() {
    let gate = gate(WINDOW);
    gate.store().switch(StoreState::Unreachable);
    decide(&gate, &request("user_id=u").with_cost(0));
    assert_eq!(gate.unreconciled().waiting, 0);
    let receipt = decide_with_receipt(&gate, &request("user_id=u"));
    assert_eq!(gate.unreconciled().waiting, 1);
    block_on(gate.give_back(receipt)).unwrap();
    assert_eq!(gate.unreconciled().waiting, 0);
}

/// The store knows of what it said itself, so that only what was admitted here is owed, less what was given back.
#[test]
fn what_is_given_back_in_part_is_owed_in_part() {
    let gate = gate(WINDOW);
    gate.store().switch(StoreState::Unreachable);
    *gate.store().last_used.lock().unwrap() = Some(5);
    let receipt = decide_with_receipt(&gate, &request("user_id=u").with_cost(3));
    block_on(gate.settle(receipt, 1)).unwrap();
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    assert_eq!(gate.store().settled(), [("u".to_owned(), 1)]);
}

#[test]
fn what_the_store_may_have_heard_is_not_said_again() {
    for by_request in [true, false] {
        let gate = gate(WINDOW);
        gate.store().switch(StoreState::Unreachable);
        assert_eq!(admitted(&gate, 3, Some(NOW)), 3);
        gate.store().switch(StoreState::Silent);
        if by_request {
            let decision = decide(&gate, &request("user_id=u").with_cost(0));
            assert!(decision.is_degraded(), "who cannot settle cannot ask");
        } else {
            block_on(gate.reconcile());
        }
        assert_eq!(gate.store().settled(), [("u".to_owned(), 3)]);
        gate.store().switch(StoreState::Up);
        block_on(gate.reconcile());
        assert_eq!(admitted(&gate, 20, Some(NOW)), 7);
        assert_eq!(gate.store().settled(), []);
    }
}

#[test]
fn nothing_is_said_to_a_store_that_is_known_to_be_away() {
    let gate = gate(WINDOW);
    gate.store().switch(StoreState::Unreachable);
    assert_eq!(admitted(&gate, 3, Some(NOW)), 3);
    gate.store().is_down.store(true, Ordering::Relaxed);
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    assert_eq!(gate.store().settled(), []);
    gate.store().is_down.store(false, Ordering::Relaxed);
    block_on(gate.reconcile());
    assert_eq!(gate.store().settled().len(), 1);
}

#[test]
fn what_no_longer_counts_is_not_settled() {
    for list in [WINDOW, BUCKET] {
        let (gate, clock) = clocked(list);
        gate.store().switch(StoreState::Unreachable);
        assert_eq!(admitted(&gate, 8, None), 8);
        clock.advance(Micros::MINUTE);
        gate.store().switch(StoreState::Up);
        block_on(gate.reconcile());
        assert_eq!(gate.store().settled(), []);
        assert_eq!(gate.unreconciled().waiting, 0);
    }
    let (gate, clock) = clocked(BUCKET);
    gate.store().switch(StoreState::Unreachable);
    assert_eq!(admitted(&gate, 8, None), 8);
    clock.advance(Micros::from_seconds(18));
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    let flowed_back = gate.store().settled();
    assert_eq!(flowed_back, [("u".to_owned(), 5)], "3 of them flowed back");
}

#[test]
fn a_window_settles_what_was_admitted_in_it() {
    let (gate, clock) = clocked(WINDOW);
    gate.store().switch(StoreState::Unreachable);
    assert_eq!(admitted(&gate, 8, None), 8);
    clock.advance(Micros::MINUTE);
    assert_eq!(admitted(&gate, 2, None), 2);
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    assert_eq!(gate.store().settled(), [("u".to_owned(), 2)]);
}

#[test]
fn what_is_reset_is_not_settled() {
    let gate = gate(WINDOW);
    gate.store().switch(StoreState::Unreachable);
    assert_eq!(admitted(&gate, 3, Some(NOW)), 3);
    gate.store().switch(StoreState::Up);
    block_on(gate.reset(&request("user_id=u"), None)).unwrap();
    block_on(gate.reconcile());
    assert_eq!(gate.store().settled(), []);
    assert_eq!(admitted(&gate, 20, Some(NOW)), 10);
}

#[test]
fn a_limit_that_changed_is_settled_as_it_is_now() {
    let gate = gate(WINDOW);
    gate.store().switch(StoreState::Unreachable);
    assert_eq!(admitted(&gate, 8, Some(NOW)), 8);
    gate.replace_rules(rules(
        "- {id: r, per: [user_id], limit: 20/minute, algorithm: fixed_window}",
    ));
    gate.store().switch(StoreState::Up);
    assert_eq!(admitted(&gate, 30, Some(NOW)), 12);
}

#[test]
fn a_request_that_one_limit_denies_settles_nothing() {
    let gate = gate("- {id: r, per: [user_id], limit: 1/minute; 9/hour}");
    gate.store().switch(StoreState::Unreachable);
    assert_eq!(admitted(&gate, 5, Some(NOW)), 1);
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    let settled: Vec<u64> = gate
        .store()
        .settled()
        .into_iter()
        .map(|(_, cost)| cost)
        .collect();
    assert_eq!(settled, [1, 1]);
}

#[test]
fn very_many_keys_are_settled() {
    let gate = gate(WINDOW);
    gate.store().switch(StoreState::Unreachable);
    for user in 0..1_000 {
        assert!(decide(&gate, &request(&format!("user_id=u{user}"))).is_allowed());
    }
    assert_eq!(gate.unreconciled().waiting, 1_000);
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    let unreconciled = gate.unreconciled();
    assert_eq!((unreconciled.waiting, unreconciled.lost), (0, 0));
    assert_eq!(gate.store().settled().len(), 1_000);
}

#[test]
fn no_thread_comes_before_what_the_store_last_said() {
    for _ in 0..50 {
        let gate = gate(WINDOW);
        gate.store().switch(StoreState::Unreachable);
        *gate.store().last_used.lock().unwrap() = Some(7);
        let all: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| admitted(&gate, 4, Some(NOW))))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(all, 3);
    }
}

#[test]
fn what_was_granted_over_a_damaged_counter_is_reconciled_when_it_is_healed() {
    let gate = gate(WINDOW);
    gate.store().switch(StoreState::Damaged);
    assert_eq!(admitted(&gate, 4, Some(NOW)), 4);
    assert_eq!(gate.store().settled(), [], "it heard nothing of them");
    gate.store().switch(StoreState::Up);
    assert_eq!(admitted(&gate, 20, Some(NOW)), 6, "4 of 10 were used");
    assert_eq!(gate.store().settled(), [("u".to_owned(), 4)]);
    assert_eq!(gate.unreconciled().waiting, 0);
}

/// How many more than its rate and burst a bucket of 50 a second grants at the worst, when three instances
/// at three times the limit lose the store for `away` of each `period` milliseconds, each `apart` later.
fn excess(period: u64, away: u64, apart: u64) -> (i64, u64) {
    const RATE: u64 = 50;
    let clock = ManualClock::new(NOW);
    let shared = Arc::new(MemoryStore::builder().clock(clock.clone()).build());
    let list = format!("- {{id: r, per: [user_id], limit: {RATE}/second}}");
    let gates: Vec<FailingGate> = (0..3)
        .map(|_| {
            let store = FailingStore::over(Arc::clone(&shared));
            store.remembers.store(true, Ordering::Relaxed);
            FailingGate::with_clock(store, rules(&list), clock.clone()).with_instances(3)
        })
        .collect();
    let (mut all, mut worst) = (0, 0);
    for milli in 0..6_000_u64 {
        clock.advance(Micros::new(1_000));
        for (index, gate) in gates.iter().enumerate() {
            let index = index as u64;
            let is_away = (milli + period - index * apart) % period < away;
            gate.store().switch(if is_away {
                StoreState::Unreachable
            } else {
                StoreState::Up
            });
            if milli % 100 == 30 * index {
                block_on(gate.reconcile());
            }
            if milli % 20 == 6 * index {
                all += admitted(gate, 1, None);
            }
        }
        let allowed = RATE + RATE * (milli + 1) / 1_000;
        worst = worst.max(i64::try_from(all).unwrap() - i64::try_from(allowed).unwrap());
    }
    (worst, all)
}

#[test]
fn a_store_that_flaps_grants_nothing_twice_of_a_bucket() {
    #[rustfmt::skip]
    let table = [
        // period   away    apart   excess at the most
        (100,       15,     5,      2),
        (100,       40,     0,      2),
        (100,       40,     33,     2),
        (40,        20,     13,     2),
        (1_000,     500,    0,      2),
        // Each is away while the others use all that there is: some of it is too old to be charged.
        (200,       100,    66,     10),
        (500,       250,    166,    25),
    ];
    for (period, away, apart, most) in table {
        let (excess, all) = excess(period, away, apart);
        assert!(excess <= most, "{excess} more, {away} ms of {period}");
        assert!(
            all >= 300,
            "{all} of 350 are granted, {away} ms of {period}"
        );
    }
}

/// The store answers the call for what is owed, and not the one for the request.
#[tokio::test(start_paused = true)]
async fn a_request_of_a_key_that_owes_takes_no_longer_than_any_other() {
    let deadline = Micros::from_millis(15);
    let gate = gate(WINDOW);
    let store = gate.store();
    *store.timeout.lock().unwrap() = Some(deadline.into());
    store.switch(StoreState::Unreachable);
    let attributes = request("user_id=u");
    assert!(gate.decide(&attributes).await.is_allowed());
    store.switch(StoreState::Up);
    store
        .answers
        .forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    let clock = TokioClock::start();
    let began = clock.now();
    let decision = tidegate_testkit::within(gate.decide(&attributes)).await;
    assert!(decision.is_degraded());
    assert_eq!(store.settled(), [("u".to_owned(), 1)]);
    let took = clock.now().since(began);
    assert!(took <= deadline, "{took:?}");
}

#[test]
fn the_counters_of_this_instance_have_the_bounds_that_are_set() {
    let list = "- {id: r, per: [u], limit: 1, algorithm: concurrency, lease_ttl: 1h}";
    let gate = Gate::new(FailingStore::unreachable(), rules(list))
        .with_local_counters(MemoryStore::builder().max_memory(64 << 10));
    let held = (0..10_000).map(|user| decide(&gate, &request(&format!("u={user}"))));
    let held = held.filter(Decision::is_allowed).count();
    assert!((10..2_000).contains(&held), "{held}");
}
