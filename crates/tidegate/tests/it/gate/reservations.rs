//! Stored reservations: reserved like a check, settled by their id.

use super::{NOW, rules};
use std::time::Duration;
use tidegate::gate::{ReservationError, ReserveError, ReservedDecision};
use tidegate::rules::FrontEnd;
use tidegate::{
    Attributes, Costs, Gate, ManualClock, MemoryStore, Micros, PermitId, ReservationId, Timestamp,
};
use tidegate_testkit::block_on;

/// A gate whose clock the test moves.
struct ClockedGate {
    gate: Gate,
    clock: ManualClock,
}

impl ClockedGate {
    fn new(list: &str) -> Self {
        Self::over(list, |builder| builder)
    }

    fn over(
        list: &str,
        build: impl FnOnce(tidegate::memory::MemoryStoreBuilder) -> tidegate::memory::MemoryStoreBuilder,
    ) -> Self {
        let clock = ManualClock::new(NOW);
        let store = build(MemoryStore::builder().clock(clock.clone())).build();
        let gate = Gate::with_clock(store, rules(list), clock.clone());
        Self { gate, clock }
    }

    fn reserve(&self, costs: impl Into<Costs>, ttl: u64) -> ReservedDecision {
        reserve(&self.gate, costs, ttl).unwrap()
    }

    fn made(&self, costs: impl Into<Costs>, ttl: u64) -> ReservationId {
        self.reserve(costs, ttl).made.unwrap().id
    }

    fn left(&self) -> Vec<u64> {
        left(&self.gate)
    }
}

fn user() -> Attributes<'static> {
    let mut attributes = Attributes::new();
    attributes.insert("user", "u1").unwrap();
    attributes
}

fn reserve(
    gate: &Gate,
    costs: impl Into<Costs>,
    ttl: u64,
) -> Result<ReservedDecision, ReserveError> {
    let attributes = user().with_cost(costs);
    let (rules, ttl) = (gate.rules(), Duration::from_secs(ttl));
    block_on(gate.reserve_stored(&rules, FrontEnd::Http, &attributes, ttl))
}

fn left(gate: &Gate) -> Vec<u64> {
    let decision = gate.try_decide(&user().with_cost(0)).unwrap();
    let limits = decision.limits();
    limits.map(|limit| limit.outcome.remaining).collect()
}

fn tokens(tokens: u64) -> Costs {
    Costs::by_unit([("tokens", tokens)]).unwrap()
}

const DAILY: &str = "- {id: tokens, per: [user], unit: tokens, limit: 100/day}";

#[test]
fn five_callers_that_estimate_60_of_100_never_hold_or_use_more() {
    for spent in [0, 25, 60, 100, 1_000] {
        let gate = ClockedGate::new(DAILY);
        let (mut open, mut used) = (Vec::new(), 0);
        for _ in 0..5 {
            let reserved = gate.reserve(tokens(60), 300);
            assert_eq!(reserved.decision.is_allowed(), reserved.made.is_some());
            open.extend(reserved.made.map(|made| made.id));
            assert!(open.len() as u64 * 60 + used <= 100, "{spent}");
            if let Some(id) = open.pop() {
                let settled =
                    block_on(gate.gate.settle_reservation(id, Some(&tokens(spent)), None)).unwrap();
                let limit = &settled.settlement.limits()[0];
                assert_eq!((limit.reserved, limit.settled), (60, spent));
                assert_eq!(limit.given_back, 60_u64.saturating_sub(spent));
                assert_eq!(
                    limit.overrun + limit.uncharged,
                    spent.saturating_sub(60),
                    "{spent}"
                );
                used += limit.reserved - limit.given_back + limit.overrun;
            }
        }
        assert!(used <= 100, "{spent}: {used}");
        assert_eq!(gate.left(), [100 - used]);
    }
}

#[test]
fn a_settled_one_answers_the_same_again_and_no_other_cost() {
    let gate = ClockedGate::new(DAILY);
    let id = gate.made(tokens(60), 10);
    let settle = |cost: &Costs| block_on(gate.gate.settle_reservation(id, Some(cost), None));
    let first = settle(&tokens(25)).unwrap();
    assert_eq!(*first.settlement.settled(), tokens(25));
    assert_eq!(first.settlement.given_back(), tokens(35));
    assert_eq!(first.settlement.overrun(), tokens(0));
    assert_eq!(settle(&tokens(25)).unwrap(), first);
    assert!(matches!(
        settle(&tokens(26)),
        Err(ReservationError::OtherCost)
    ));
    assert!(matches!(
        settle(&Costs::from(25)),
        Err(ReservationError::OtherKind)
    ));
    let cancelled = block_on(gate.gate.settle_reservation(id, None, None));
    assert!(matches!(cancelled, Err(ReservationError::OtherCost)));
    let extended = block_on(
        gate.gate
            .extend_reservation(id, Duration::from_mins(1), None),
    );
    assert!(matches!(extended, Err(ReservationError::Settled)));
    assert_eq!(gate.left(), [75]);
    let look = || block_on(gate.gate.look_at_reservation(id));
    assert_eq!(look().unwrap(), first);
    // Remembered for a minute, whatever its ttl was.
    gate.clock.advance(Micros::from_seconds(59));
    assert!(settle(&tokens(25)).is_ok());
    gate.clock.advance(Micros::SECOND);
    assert!(matches!(
        settle(&tokens(25)),
        Err(ReservationError::Unknown)
    ));
    assert!(matches!(look(), Err(ReservationError::Unknown)));
}

#[test]
fn cancelled_is_settled_at_nothing_and_unknown_ids_are_not_found() {
    let gate = ClockedGate::new(DAILY);
    let id = gate.made(60, 300);
    let cancel = || block_on(gate.gate.settle_reservation(id, None, None));
    let cancelled = cancel().unwrap();
    assert_eq!(cancelled.settlement.given_back(), Costs::from(60));
    assert_eq!(cancel().unwrap(), cancelled);
    let zero = block_on(
        gate.gate
            .settle_reservation(id, Some(&Costs::from(0)), None),
    );
    assert_eq!(zero.unwrap(), cancelled);
    assert_eq!(gate.left(), [100]);
    let unknown = ReservationId::from_u128(7);
    let settled = block_on(
        gate.gate
            .settle_reservation(unknown, Some(&Costs::from(0)), None),
    );
    assert!(matches!(settled, Err(ReservationError::Unknown)));
}

#[test]
fn what_is_never_settled_is_kept_or_given_back_at_its_end() {
    let list = "
- {id: kept, per: [user], limit: 100/day}
- {id: back, per: [user], limit: 100/day, unsettled: give_back}";
    let gate = ClockedGate::new(list);
    let id = gate.made(60, 10);
    gate.clock.advance(Micros::from_seconds(9));
    assert_eq!(gate.left(), [40, 40]);
    let until = block_on(
        gate.gate
            .extend_reservation(id, Duration::from_secs(5), None),
    );
    assert_eq!(until.unwrap().expires_at, NOW + Micros::from_seconds(14));
    gate.clock.advance(Micros::from_seconds(4));
    assert_eq!(gate.left(), [40, 40]);
    gate.clock.advance(Micros::SECOND);
    assert_eq!(gate.left(), [40, 100]);
    let late = block_on(
        gate.gate
            .settle_reservation(id, Some(&Costs::from(1)), None),
    );
    assert!(matches!(late, Err(ReservationError::Unknown)));
    let never = block_on(
        gate.gate
            .extend_reservation(id, Duration::from_hours(24), None),
    );
    assert!(matches!(never, Err(ReservationError::Unknown)));
}

#[test]
fn a_settlement_that_takes_a_counter_to_warn_at_is_counted_once() {
    let list = "- {id: tokens, per: [user], unit: tokens, limit: 100/hour, algorithm: fixed_window, warn_at: 80}";
    #[rustfmt::skip]
    let table = [
        // estimate, actual, warned
        (60,    79,     0),
        (60,    80,     1),
        (60,    500,    1),
        // It was reached by the charge.
        (80,    90,     0),
        (60,    10,     0),
    ];
    for (estimate, actual, expected) in table {
        let clocked = ClockedGate::new(list);
        let id = clocked.made(tokens(estimate), 300);
        for _ in 0..2 {
            let actual = tokens(actual);
            block_on(clocked.gate.settle_reservation(id, Some(&actual), None)).unwrap();
        }
        let rules = clocked.gate.rules();
        let warned = rules.get("tokens").unwrap().counts().warned();
        assert_eq!(warned, expected, "{estimate} settled at {actual}");
    }
}

#[test]
fn none_lasts_longer_than_a_day_after_it_was_made() {
    let gate = ClockedGate::new(DAILY);
    let id = gate.made(60, 10);
    gate.clock.advance(Micros::from_seconds(5));
    let until = block_on(
        gate.gate
            .extend_reservation(id, Duration::from_hours(24), None),
    );
    assert_eq!(until.unwrap().expires_at, NOW + Micros::DAY);
}

#[test]
fn a_denied_one_has_no_id_and_nothing_is_charged_without_a_limit() {
    let gate = ClockedGate::new(DAILY);
    let denied = gate.reserve(tokens(101), 10);
    assert!(denied.decision.is_denied());
    assert_eq!(denied.made, None);
    let uncharged = gate.reserve(Costs::by_unit([("money", 5)]).unwrap(), 10);
    assert!(uncharged.decision.is_allowed());
    assert_eq!(uncharged.made, None);
    assert_eq!(gate.left(), [100]);
}

#[test]
fn shadow_rules_are_reserved_and_settled_on_their_own() {
    let list = "
- {id: enforced, per: [user], limit: 100/day}
- {id: few, per: [user], limit: 50/day, mode: shadow}
- {id: many, per: [user], limit: 500/day, mode: shadow}";
    let gate = ClockedGate::new(list);
    let reserved = gate.reserve(60, 10);
    assert!(reserved.decision.is_allowed());
    let id = reserved.made.unwrap().id;
    let settled = block_on(
        gate.gate
            .settle_reservation(id, Some(&Costs::from(10)), None),
    )
    .unwrap();
    let limits = settled.settlement.limits().iter();
    let said: Vec<_> = limits
        .map(|limit| (limit.rule(), limit.is_shadow, limit.given_back))
        .collect();
    assert_eq!(said, [("enforced", false, 50), ("many", true, 50)]);
    assert_eq!(gate.left(), [90, 50, 490]);
}

#[test]
fn it_is_settled_where_it_was_charged_whatever_the_rules_say_since() {
    let gate = ClockedGate::new(DAILY);
    let id = gate.made(tokens(60), 300);
    let lower = "- {id: tokens, per: [user], unit: tokens, limit: 10/day}";
    gate.gate.replace_rules(rules(lower));
    assert_eq!(gate.left(), [0]);
    let settled = block_on(gate.gate.settle_reservation(id, Some(&tokens(80)), None)).unwrap();
    let limit = &settled.settlement.limits()[0];
    assert_eq!((limit.limit, limit.overrun, limit.uncharged), (100, 20, 0));
    gate.gate.replace_rules(rules(DAILY));
    assert_eq!(gate.left(), [20]);
    let id = gate.made(tokens(20), 300);
    gate.gate.replace_rules(tidegate::rules::RuleSet::empty());
    let settled = block_on(gate.gate.settle_reservation(id, Some(&tokens(5)), None)).unwrap();
    assert_eq!(settled.settlement.limits()[0].given_back, 15);
    gate.gate.replace_rules(rules(DAILY));
    assert_eq!(gate.left(), [15]);
}

#[test]
fn a_permit_ends_with_its_reservation_alone() {
    let list = "- {id: held, per: [user], limit: 1, algorithm: concurrency}";
    let gate = ClockedGate::new(list);
    let reserved = gate.reserve(1, 10);
    let id = reserved.made.unwrap().id;
    let permit = PermitId::from_u128(id.as_u128());
    assert_eq!(reserved.decision.permit(), Some(permit));
    assert!(!block_on(gate.gate.release(permit)).unwrap());
    assert!(gate.reserve(1, 10).decision.is_denied());
    block_on(
        gate.gate
            .settle_reservation(id, Some(&Costs::from(1)), None),
    )
    .unwrap();
    let second = gate.reserve(1, 10);
    assert!(second.decision.is_allowed(), "released by settling");
    gate.clock.advance(Micros::from_seconds(10));
    assert!(gate.reserve(1, 10).decision.is_allowed(), "by expiry");
}

#[test]
fn too_many_are_refused_and_nothing_is_charged() {
    let gate = ClockedGate::over(DAILY, |builder| builder.max_reservations(2));
    let first = gate.made(tokens(1), 10);
    gate.made(tokens(1), 20);
    let refused = || {
        matches!(
            reserve(&gate.gate, tokens(1), 10),
            Err(ReserveError::TooMany)
        )
    };
    assert!(refused());
    assert_eq!(gate.left(), [98]);
    block_on(gate.gate.settle_reservation(first, None, None)).unwrap();
    gate.made(tokens(1), 20);
    assert!(refused());
    gate.clock.advance(Micros::from_seconds(20));
    assert!(gate.reserve(tokens(1), 10).made.is_some(), "two have ended");
}

#[test]
fn times_that_are_supplied_decide_when_it_ends() {
    let list = "- {id: back, per: [user], limit: 100/day, unsettled: give_back}";
    let gate = ClockedGate::new(list);
    let (rules, minute) = (gate.gate.rules(), Duration::from_mins(1));
    let at = |second| NOW + Micros::from_seconds(second);
    let reserve = |second| {
        let attributes = user().with_cost(60).at(at(second));
        let reserving = gate
            .gate
            .reserve_stored(&rules, FrontEnd::Http, &attributes, minute);
        block_on(reserving).unwrap()
    };
    let id = reserve(0).made.unwrap().id;
    gate.clock.advance(Micros::HOUR);
    let until = block_on(gate.gate.extend_reservation(id, minute, Some(at(30))));
    assert_eq!(
        until.unwrap().expires_at,
        at(90),
        "the clock says nothing about it"
    );
    assert!(reserve(89).decision.is_denied());
    let second = reserve(90).made.unwrap().id;
    let own = block_on(gate.gate.settle_reservation(second, None, None)).unwrap();
    assert_eq!(own.settlement.limits()[0].given_back, 60, "at its own time");
    let ended: Option<Timestamp> = Some(at(90));
    let late = block_on(gate.gate.settle_reservation(id, None, ended));
    assert!(matches!(late, Err(ReservationError::Unknown)));
}
