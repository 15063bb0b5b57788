//! Reservations of this process: guards that settle, cancel, or are dropped.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tidegate::gate::{ReservationEnd, ReservationGuard, ReserveError, SettleError};
use tidegate::rules::BudgetKind;
use tidegate::{Attributes, Costs, Gate, ManualClock, MemoryStore, Micros};
use tidegate_testkit::{FailingStore, StoreState, block_on};

use super::{FailingGate, gate, left, request, rules};

const TOKENS: &str = "
- {id: requests, per: [], limit: 50/hour}
- {id: tokens, per: [], unit: tokens, limit: 100/hour, algorithm: fixed_window}
- {id: shadow, per: [], unit: tokens, limit: 80/hour, algorithm: fixed_window, mode: shadow}";

fn tokens(tokens: u64) -> Costs {
    Costs::by_unit([("tokens", tokens)]).unwrap()
}

fn reserve(gate: &Gate, costs: impl Into<Costs>) -> ReservationGuard<'_> {
    block_on(gate.reserve(&request(""), costs)).unwrap()
}

#[test]
fn what_is_settled_replaces_the_estimate_in_every_counter_that_was_charged() {
    #[rustfmt::skip]
    let table = [
        // actual  left in requests, tokens, shadow     given back, overrun, uncharged in tokens
        (60,       [49, 40, 20],                        (0, 0, 0)),
        (25,       [49, 75, 55],                        (35, 0, 0)),
        (0,        [49, 100, 80],                       (60, 0, 0)),
        (90,       [49, 10, 0],                         (0, 30, 0)),
        (130,      [49, 0, 0],                          (0, 40, 30)),
    ];
    for (actual, remaining, (given_back, overrun, uncharged)) in table {
        let gate = gate(TOKENS);
        let guard = reserve(&gate, tokens(60));
        assert!(guard.decision().is_allowed());
        assert_eq!(gate.reservations().open(), 1);
        let settlement = block_on(guard.settle(tokens(actual))).unwrap();
        assert_eq!(left(&gate, ""), remaining, "{actual}");
        assert_eq!(*settlement.settled(), tokens(actual));
        assert_eq!(
            settlement.given_back(),
            tokens(60_u64.saturating_sub(actual))
        );
        assert_eq!(settlement.overrun(), tokens(actual.saturating_sub(60)));
        let [requests, of_tokens, shadow] = settlement.limits() else {
            panic!("{settlement:?}");
        };
        assert_eq!(
            (requests.rule(), requests.reserved, requests.settled),
            ("requests", 1, 1)
        );
        assert_eq!(
            (of_tokens.rule(), of_tokens.reserved, of_tokens.settled),
            ("tokens", 60, actual)
        );
        let changed = (of_tokens.given_back, of_tokens.overrun, of_tokens.uncharged);
        assert_eq!(changed, (given_back, overrun, uncharged), "{actual}");
        assert!(shadow.is_shadow && shadow.rule() == "shadow");
        let counts = gate.reservations();
        assert_eq!(
            (counts.open(), counts.ended(ReservationEnd::Settled)),
            (0, 1)
        );
        let rules = gate.rules();
        let counts = |id| rules.get(id).unwrap().counts();
        assert_eq!(counts("tokens").budget(BudgetKind::Reserved), 60);
        assert_eq!(counts("tokens").budget(BudgetKind::Settled), actual);
        assert_eq!(counts("tokens").budget(BudgetKind::GivenBack), given_back);
        assert_eq!(
            counts("shadow").budget(BudgetKind::Settled),
            0,
            "it does not decide"
        );
    }
}

#[test]
fn a_cancelled_reservation_was_never_made() {
    let gate = gate(TOKENS);
    let settlement = block_on(reserve(&gate, tokens(60)).cancel()).unwrap();
    assert_eq!(left(&gate, ""), [50, 100, 80]);
    assert_eq!(*settlement.settled(), tokens(0));
    assert_eq!(settlement.given_back(), tokens(60));
    assert_eq!(gate.reservations().ended(ReservationEnd::Cancelled), 1);

    let settlement = block_on(reserve(&gate, 7).cancel()).unwrap();
    assert_eq!(settlement.given_back(), Costs::from(7));
}

#[test]
fn a_guard_that_is_dropped_keeps_its_estimate_and_releases_its_permits() {
    let gate = gate(&format!(
        "{TOKENS}\n- {{id: held, per: [], limit: 1, algorithm: concurrency}}"
    ));
    let guard = reserve(&gate, tokens(60));
    assert!(
        reserve(&gate, tokens(1)).decision().is_denied(),
        "the permit is held"
    );
    drop(guard);
    assert_eq!(left(&gate, ""), [49, 40, 19, 1]);
    assert_eq!(gate.reservations().ended(ReservationEnd::Expired), 1);
    for costs in [Some(tokens(1)), None] {
        let guard = reserve(&gate, tokens(1));
        assert_eq!(left(&gate, "")[3], 0);
        match costs {
            Some(costs) => block_on(guard.settle(costs)).unwrap(),
            None => block_on(guard.cancel()).unwrap(),
        };
        assert_eq!(left(&gate, "")[3], 1);
    }
}

#[test]
fn what_was_denied_or_is_nothing_reserves_nothing() {
    let gate = gate(TOKENS);
    let guard = reserve(&gate, tokens(101));
    assert!(guard.decision().is_denied());
    let settlement = block_on(guard.settle(tokens(5))).unwrap();
    assert!(
        settlement
            .limits()
            .iter()
            .all(|limit| limit.rule() == "shadow"),
        "{settlement:?}"
    );
    assert_eq!(left(&gate, "")[..2], [50, 100]);
    assert_eq!(gate.reservations().open(), 0);
    for nothing in [Costs::from(0), tokens(0), Costs::by_unit([]).unwrap()] {
        let refused = block_on(gate.reserve(&request(""), nothing));
        assert_eq!(refused.unwrap_err(), ReserveError::NothingToReserve);
    }
}

#[test]
fn one_cost_and_costs_by_unit_do_not_replace_each_other() {
    let gate = gate(TOKENS);
    let settled = block_on(reserve(&gate, tokens(5)).settle(5));
    assert!(
        matches!(settled, Err(SettleError::OtherKind)),
        "{settled:?}"
    );
    let settled = block_on(reserve(&gate, 5).settle(tokens(5)));
    assert!(
        matches!(settled, Err(SettleError::OtherKind)),
        "{settled:?}"
    );
    assert_eq!(left(&gate, ""), [44, 90, 70]);
}

#[test]
fn without_the_store_what_is_more_is_counted_here_and_what_is_less_stays() {
    let list = "- {id: tokens, per: [], unit: tokens, limit: 100/hour, algorithm: fixed_window}";
    for (actual, remaining) in [(25, 40), (75, 25)] {
        let gate = FailingGate::new(FailingStore::default(), rules(list));
        let guard = reserve(&gate, tokens(60));
        gate.store().switch(StoreState::Unreachable);
        let settled = block_on(guard.settle(tokens(actual)));
        assert!(matches!(settled, Err(SettleError::Store(_))));
        assert_eq!(gate.reservations().ended(ReservationEnd::Failed), 1);
        gate.store().switch(StoreState::Up);
        block_on(gate.reconcile());
        assert_eq!(left(&gate, ""), [remaining]);
    }
}

/// A gate over a clock that stands still, with rules that give back, keep, and count requests.
fn giving_back() -> (Gate, ManualClock) {
    let list = "
- {id: back, per: [], unit: tokens, limit: 100/day, unsettled: give_back}
- {id: kept, per: [], unit: tokens, limit: 100/day}";
    let clock = ManualClock::new(super::NOW);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (Gate::with_clock(store, rules(list), clock.clone()), clock)
}

fn left_now(gate: &Gate) -> Vec<u64> {
    let decision = super::decide(gate, &Attributes::new().with_cost(0));
    let limits = decision.limits();
    limits.map(|limit| limit.outcome.remaining).collect()
}

fn reserve_now(gate: &Gate) -> ReservationGuard<'_> {
    block_on(gate.reserve(&Attributes::new(), tokens(60))).unwrap()
}

#[test]
fn what_is_dropped_is_given_back_by_rules_that_say_so() {
    let (gate, clock) = giving_back();
    let guard = reserve_now(&gate);
    assert!(guard.decision().is_allowed());
    assert_eq!(left_now(&gate), [40, 40]);
    drop(guard);
    clock.advance(Micros::new(1));
    assert_eq!(left_now(&gate), [100, 40]);
}

#[test]
fn what_is_never_settled_is_given_back_when_its_time_is_over() {
    let (gate, clock) = giving_back();
    // As if its process had ended.
    std::mem::forget(reserve_now(&gate));
    clock.advance(Micros::from_seconds(299));
    assert_eq!(left_now(&gate), [40, 40]);
    clock.advance(Micros::SECOND);
    assert_eq!(left_now(&gate), [100, 40]);
}

#[test]
fn what_has_a_record_is_settled_and_cancelled_like_any_other() {
    let (gate, clock) = giving_back();
    let settlement = block_on(reserve_now(&gate).settle(tokens(25))).unwrap();
    assert_eq!(settlement.given_back(), tokens(35));
    let limits: Vec<(&str, u64)> = settlement
        .limits()
        .iter()
        .map(|limit| (limit.rule(), limit.given_back))
        .collect();
    assert_eq!(limits, [("back", 35), ("kept", 35)]);
    let settlement = block_on(reserve_now(&gate).cancel()).unwrap();
    assert_eq!(settlement.given_back(), tokens(60));
    clock.advance(Micros::HOUR);
    assert_eq!(left_now(&gate), [75, 75]);
    let settled = block_on(reserve_now(&gate).settle(5));
    assert!(
        matches!(settled, Err(SettleError::OtherKind)),
        "{settled:?}"
    );
    let ends = [ReservationEnd::Settled, ReservationEnd::Cancelled]
        .map(|end| gate.reservations().ended(end));
    assert_eq!(ends, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_guard_extends_its_reservation_while_it_lasts() {
    let list = "- {id: back, per: [], unit: tokens, limit: 100/day, algorithm: fixed_window, anchor: first_request, unsettled: give_back}";
    let clock = tidegate::TokioClock::start();
    let store = MemoryStore::builder().clock(clock).build();
    let gate = Gate::with_clock(store, rules(list), clock);
    let ttl = Duration::from_mins(1);
    let guard = gate
        .reserve_for(&Attributes::new(), tokens(60), ttl)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(left_now(&gate), [40]);
    let settlement = guard.settle(tokens(20)).await.unwrap();
    assert_eq!(settlement.given_back(), tokens(40));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(left_now(&gate), [80]);
}

/// What callers of five calls at the same time hold or have used, of 100.
fn five_calls(gate: &Gate, actuals: [u64; 5]) -> (usize, u64, u64) {
    let guards: Vec<_> = actuals.map(|_| reserve(gate, tokens(60))).into();
    let admitted: Vec<_> = guards
        .into_iter()
        .zip(actuals)
        .filter(|(guard, _)| guard.decision().is_allowed())
        .collect();
    let held = 60 * admitted.len() as u64;
    assert!(held <= 100);
    let (calls, mut used, mut overrun) = (admitted.len(), 0, 0);
    for (guard, actual) in admitted {
        let settlement = block_on(guard.settle(tokens(actual))).unwrap();
        used += actual;
        overrun += settlement
            .overrun()
            .units()
            .iter()
            .map(|(_, cost)| cost)
            .sum::<u64>();
    }
    (calls, used, overrun)
}

#[test]
fn five_concurrent_calls_do_not_spend_a_budget_five_times() {
    let list = "- {id: tokens, per: [], unit: tokens, limit: 100/minute}";
    assert_eq!(five_calls(&gate(list), [60; 5]), (1, 60, 0));
    assert_eq!(five_calls(&gate(list), [20; 5]), (1, 20, 0));
    assert_eq!(five_calls(&gate(list), [133; 5]), (1, 133, 73));
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Reserve(u64),
    Settle(usize, u64),
    Cancel(usize),
    Drop(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (1..40_u64).prop_map(Action::Reserve),
        (0..8_usize, 0..60_u64).prop_map(|(index, actual)| Action::Settle(index, actual)),
        (0..8_usize).prop_map(Action::Cancel),
        (0..8_usize).prop_map(Action::Drop),
    ]
}

proptest! {
    /// Open estimates and settled costs, each up to its estimate, never exceed the limit, and at one instant what is
    /// left is the rest.
    #[test]
    fn a_budget_is_never_exceeded_but_by_overruns(
        algorithm in select(vec!["fixed_window", "sliding_window_log", "sliding_window_counter", "sliding_window_slots", "token_bucket", "leaky_bucket, shape: false"]),
        actions in prop::collection::vec(action(), 1..40),
    ) {
        let gate = gate(&format!("- {{id: tokens, per: [], unit: tokens, limit: 100/hour, algorithm: {algorithm}}}"));
        let (mut open, mut used): (Vec<(ReservationGuard<'_>, u64)>, u64) = (Vec::new(), 0);
        for action in actions {
            let index = |index: usize, open: &[(ReservationGuard<'_>, u64)]| (index < open.len()).then_some(index);
            match action {
                Action::Reserve(estimate) => {
                    let guard = reserve(&gate, tokens(estimate));
                    prop_assert_eq!(guard.decision().is_allowed(), used + estimate <= 100);
                    if guard.decision().is_allowed() {
                        used += estimate;
                        open.push((guard, estimate));
                    }
                }
                Action::Settle(at, actual) => if let Some(at) = index(at, &open) {
                    let (guard, estimate) = open.swap_remove(at);
                    let settlement = block_on(guard.settle(tokens(actual))).unwrap();
                    let limit = &settlement.limits()[0];
                    let excess = actual.saturating_sub(estimate);
                    prop_assert_eq!(limit.given_back, estimate.saturating_sub(actual));
                    prop_assert_eq!(limit.overrun, excess.min(100 - used));
                    prop_assert_eq!(limit.uncharged, excess - limit.overrun);
                    used = used + limit.overrun - limit.given_back;
                },
                Action::Cancel(at) => if let Some(at) = index(at, &open) {
                    let (guard, estimate) = open.swap_remove(at);
                    block_on(guard.cancel()).unwrap();
                    used -= estimate;
                },
                Action::Drop(at) => if let Some(at) = index(at, &open) {
                    drop(open.swap_remove(at));
                },
            }
            prop_assert!(used <= 100);
            prop_assert_eq!(left(&gate, ""), [100 - used]);
            prop_assert_eq!(gate.reservations().open(), open.len() as u64);
        }
    }
}
