//! Stored reservations: every store answers as the one in memory does, which tests of its own compare with a model.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    Charge, CostUnit, Costs, ExtendAnswer, Limit, MadeReservation, ManualClock, MemoryStore,
    Micros, Request, ReservationId, ReserveRequest, Reserved, ReservedCharge, Scope, SettleAnswer,
    SettleRequest, Store, StoredReservation, Timestamp,
};

use super::{Random, START, limits_of};

pub(super) static TOKENS: LazyLock<CostUnit> = LazyLock::new(|| CostUnit::new("tokens").unwrap());
/// The ids of the suite differ.
static NEXT: AtomicU64 = AtomicU64::new(1);

pub(super) fn next_id() -> ReservationId {
    ReservationId::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 16 | 7)
}

/// How long the reservations of this suite last.
const TTL: Micros = Micros::from_seconds(300);

/// A reservation of one charge on each of these limits.
fn reserved<'a>(scope: &'a Scope, limits: &'a [Limit], cost: u64) -> Vec<ReservedCharge<'a>> {
    let charge = |limit: &'a Limit| ReservedCharge {
        charge: Charge {
            scope,
            limit,
            key: "key",
            cost,
        },
        unit: &TOKENS,
        unit_cost: 1,
        label: "a label\nof two lines",
    };
    limits.iter().map(charge).collect()
}

async fn reserve(
    store: &Store,
    groups: &[&[ReservedCharge<'_>]],
    cost: u64,
    at: Timestamp,
) -> (bool, Option<MadeReservation>) {
    let estimate = Costs::by_unit([("tokens", cost)]).unwrap();
    let request = ReserveRequest {
        id: next_id(),
        groups,
        estimate: &estimate,
        ttl: TTL,
        at: Some(at),
    };
    match store.reserve(&request).await.unwrap() {
        Reserved::Decided { outcomes, made } => {
            let is_allowed = outcomes[0].iter().all(|outcome| outcome.allowed);
            (is_allowed, made)
        }
        Reserved::TooMany => (false, None),
    }
}

async fn remaining(store: &Store, scope: &Scope, limit: &Limit, at: Timestamp) -> u64 {
    let charges = [Charge {
        scope,
        limit,
        key: "key",
        cost: 0,
    }];
    let outcomes = store.peek(&Request::new(&charges).at(at)).await;
    outcomes.unwrap()[0].remaining
}

/// Settled below and above the estimate, repeated, settled otherwise, cancelled, under every algorithm.
pub async fn settles_reservations(store: &Store) {
    let mut limits = limits_of(100);
    limits.retain(|limit| !limit.is_concurrency());
    for (index, limit) in (0..).zip(&limits) {
        let name = limit.algorithm().name();
        let scope = Scope::new(&format!("settles-{index}"));
        let limits = std::slice::from_ref(limit);
        let part = reserved(&scope, limits, 60);
        let at = START + Micros::new(index);
        let (_, made) = reserve(store, &[&part], 60, at).await;
        let made = made.unwrap();
        assert_eq!(made.expires_at, at + TTL, "{name}");
        let (is_allowed, none) = reserve(store, &[&part], 60, at).await;
        assert_eq!((is_allowed, none), (false, None), "{name}: 60 are held");
        let costs = |cost| Costs::by_unit([("tokens", cost)]).unwrap();
        let settle = async |id, cost: u64| {
            let actual = costs(cost);
            let request = SettleRequest {
                id,
                actual: Some(&actual),
                at: Some(at),
            };
            store.settle_reservation(&request).await.unwrap()
        };
        for is_repeated in [false, true] {
            let SettleAnswer::Settled {
                reservation,
                is_repeated: said,
            } = settle(made.id, 25).await
            else {
                unreachable!("{name}: it is open");
            };
            assert_eq!(said, is_repeated, "{name}");
            assert_eq!(reservation.settled, Some(costs(25)), "{name}");
            let part = &reservation.parts[0];
            assert_eq!((part.reserved, part.settled), (60, 25), "{name}");
            assert_eq!(part.adjusted.given_back, 35, "{name}");
            assert_eq!(&*part.label, "a label\nof two lines", "{name}");
            assert_eq!((part.unit.as_str(), part.limit), ("tokens", 100), "{name}");
        }
        assert_eq!(settle(made.id, 26).await, SettleAnswer::OtherCost, "{name}");
        assert_eq!(remaining(store, &scope, limit, at).await, 75, "{name}");
        let extended = store.extend_reservation(made.id, TTL, Some(at)).await;
        assert_eq!(extended.unwrap(), ExtendAnswer::Settled, "{name}");
        let other = Costs::from(25);
        let kind = SettleRequest {
            id: made.id,
            actual: Some(&other),
            at: Some(at),
        };
        let answer = store.settle_reservation(&kind).await.unwrap();
        assert_eq!(answer, SettleAnswer::OtherKind, "{name}");

        let (_, over) = reserve(store, &[&reserved(&scope, limits, 50)], 50, at).await;
        let SettleAnswer::Settled { reservation, .. } = settle(over.unwrap().id, 100).await else {
            unreachable!("{name}: it is open");
        };
        let adjusted = reservation.parts[0].adjusted;
        assert_eq!((adjusted.overrun, adjusted.uncharged), (25, 25), "{name}");
        assert_eq!(remaining(store, &scope, limit, at).await, 0, "{name}");
        let unknown = settle(ReservationId::from_u128(1), 1).await;
        assert_eq!(unknown, SettleAnswer::Unknown);
        let looked = store.look_at_reservation(made.id).await.unwrap();
        assert_eq!(looked.map(|looked| looked.settled), Some(Some(costs(25))));
    }
}

/// A reset voids what was reserved before it, and no more.
pub async fn voids_reservations_by_a_reset(store: &Store) {
    let mut limits = limits_of(100);
    limits.retain(|limit| !limit.is_concurrency());
    for (index, limit) in (0..).zip(&limits) {
        let name = limit.algorithm().name();
        let scope = Scope::new(&format!("voids-{index}"));
        let limits = std::slice::from_ref(limit);
        let at = START + Micros::SECOND;
        let part = reserved(&scope, limits, 60);
        let (_, made) = reserve(store, &[&part], 60, at).await;
        store.forget(&scope, limit, "key").await.unwrap();
        let later = at + Micros::SECOND;
        let (_, since) = reserve(store, &[&part], 60, later).await;
        for cost in [0, 100] {
            let id = made.unwrap().id;
            let actual = Costs::by_unit([("tokens", cost)]).unwrap();
            let request = SettleRequest {
                id,
                actual: Some(&actual),
                at: Some(later),
            };
            if let SettleAnswer::Settled { reservation, .. } =
                store.settle_reservation(&request).await.unwrap()
            {
                let done = reservation.parts[0].adjusted;
                let done = (done.given_back, done.overrun, done.uncharged);
                assert_eq!(done, (0, 0, 0), "{name}");
            }
        }
        assert_eq!(remaining(store, &scope, limit, later).await, 40, "{name}");
        let request = SettleRequest {
            id: since.unwrap().id,
            actual: None,
            at: Some(later),
        };
        store.settle_reservation(&request).await.unwrap();
        assert_eq!(remaining(store, &scope, limit, later).await, 100, "{name}");
    }
}

/// A reservation of the random test, with its ids in both stores.
#[derive(Clone, Copy)]
struct Both {
    here: MadeReservation,
    there: MadeReservation,
}

/// Random reservations, charges, settlements, extensions and resets on a few keys, at the latest time, at an earlier one
/// and without any: the same answers as from memory.
#[expect(clippy::too_many_lines, reason = "one arm for each call of a store")]
pub async fn reservations_agree_with_memory(store: &Store, seed: u64, steps: usize) {
    let memory = MemoryStore::builder_with(ManualClock::new(START), [0; 32]).build();
    let kept = Scope::new("reserves");
    let back = Scope::new("reserves-back").giving_back();
    let shadow = Scope::new("reserves-shadow").giving_back();
    let limits = limits_of(20);
    let keys = ["one", "two", "three"];
    let units = [CostUnit::REQUESTS, TOKENS.clone()];
    let (mut random, mut now) = (Random(seed | 1), START);
    let mut open: Vec<Both> = Vec::new();
    for step in 0..steps {
        now = now + Micros::new(random.below(30_000_000));
        // A store may know of a time only where it was supplied: in the slots of these keys.
        let supplied = keys.map(|key| Charge {
            scope: &kept,
            limit: &limits[0],
            key,
            cost: 0,
        });
        let supplied = Request::new(&supplied).at(now);
        store.peek(&supplied).await.unwrap();
        memory.peek(&supplied);
        let count = random.below(3);
        let mut group = |scope| {
            let charges = (0..=count).map(|_| ReservedCharge {
                charge: Charge {
                    scope,
                    limit: random.one_of(&limits),
                    key: random.one_of::<&str>(&keys),
                    cost: random.below(6),
                },
                unit: random.one_of(&units),
                unit_cost: 1 + random.below(2),
                label: "label",
            });
            charges.collect::<Vec<_>>()
        };
        let (first, second) = ([group(&kept), group(&back)].concat(), group(&shadow));
        let groups = [&first[..], &second[..1]];
        let case = format!("step {step} of seed {seed:#x}");
        match random.below(12) {
            0..5 => {
                let estimate = match random.below(2) {
                    0 => Costs::from(3),
                    _ => Costs::by_unit([("tokens", 3)]).unwrap(),
                };
                let request = ReserveRequest {
                    id: ReservationId::from_u128(u128::from(random.next()) << 40 | 1),
                    groups: &groups,
                    estimate: &estimate,
                    ttl: Micros::from_seconds(1 + random.below(200)),
                    at: Some(now),
                };
                let here = store.reserve(&request).await.unwrap();
                let there = memory.reserve(&request);
                let (here, there) = (decided(here), decided(there));
                assert_eq!(here.0, there.0, "{case}: {groups:?}");
                match (here.1, there.1) {
                    (Some(here), Some(there)) => {
                        assert_eq!(here.expires_at, there.expires_at, "{case}");
                        open.push(Both { here, there });
                    }
                    (here, there) => assert_eq!((here, there), (None, None), "{case}"),
                }
            }
            5..9 if !open.is_empty() => {
                let index = usize::try_from(random.below(open.len() as u64)).unwrap_or(0);
                let both = open[index];
                let cost = random.below(9);
                let actual = match random.below(3) {
                    0 => None,
                    1 => Some(Costs::from(cost)),
                    _ => Some(Costs::by_unit([("tokens", cost)]).unwrap()),
                };
                let at = match random.below(4) {
                    0 => None,
                    1 => Some(now - Micros::new(random.below(100_000_000))),
                    _ => Some(now),
                };
                let request = |id| SettleRequest {
                    id,
                    actual: actual.as_ref(),
                    at,
                };
                let here = store.settle_reservation(&request(both.here.id)).await;
                let there = memory.settle_reservation(&request(both.there.id));
                let case = format!("{case}: {actual:?} at {at:?}");
                assert_eq!(nameless(here.unwrap()), nameless(there.clone()), "{case}");
                if there == SettleAnswer::Unknown {
                    open.swap_remove(index);
                }
            }
            9 if !open.is_empty() => {
                let both = *random.one_of(&open);
                let ttl = Micros::from_seconds(1 + random.below(400));
                let at = Some(now).filter(|_| random.below(4) > 0);
                let here = store.extend_reservation(both.here.id, ttl, at).await;
                let there = memory.extend_reservation(both.there.id, ttl, at);
                assert_eq!(here.unwrap(), there, "{case}");
                let here = store.look_at_reservation(both.here.id).await.unwrap();
                let there = memory.look_at_reservation(both.there.id);
                assert_eq!(here.map(without_id), there.map(without_id), "{case}");
            }
            10 => {
                let Charge {
                    scope, limit, key, ..
                } = first[0].charge;
                store.forget(scope, limit, key).await.unwrap();
                memory.forget(scope, limit, key);
            }
            _ => {
                let charges: Vec<_> = first.iter().map(|reserved| reserved.charge).collect();
                let request = Request::new(&charges).at(now);
                let here = store.charge(&request).await.unwrap();
                assert_eq!(here, memory.charge(&request), "{case}");
            }
        }
    }
}

fn decided(reserved: Reserved) -> (Vec<crate::Outcomes>, Option<MadeReservation>) {
    match reserved {
        Reserved::Decided { outcomes, made } => (outcomes.into_vec(), made),
        Reserved::TooMany => (Vec::new(), None),
    }
}

/// The answer without the id, which is the store's own.
fn nameless(answer: SettleAnswer) -> SettleAnswer {
    match answer {
        SettleAnswer::Settled {
            reservation,
            is_repeated,
        } => SettleAnswer::Settled {
            reservation: without_id(reservation),
            is_repeated,
        },
        other => other,
    }
}

fn without_id(reservation: StoredReservation) -> StoredReservation {
    StoredReservation {
        id: ReservationId::from_u128(0),
        ..reservation
    }
}
