//! Stored reservations in memory, against a model that keeps the states itself: any interleaving of reserve, settle,
//! cancel, extend, expiry, reset, sweep, and restart from a snapshot.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use tidegate_core::conformance::{ModelState, limits_of};
use tidegate_core::{
    Adjusted, Charge, Clock, CostUnit, Costs, ExtendAnswer, Limit, ManualClock, MemoryStore,
    Micros, PermitId, Request, ReservationId, ReserveRequest, Reserved, ReservedCharge, Scope,
    SettleAnswer, SettleRequest, Timestamp,
};

const START: Timestamp = Timestamp::from_seconds(1_794_700_800);
const DAY: Micros = Micros::DAY;
static TOKENS: LazyLock<CostUnit> = LazyLock::new(|| CostUnit::new("tokens").unwrap());

/// xorshift64*.
#[derive(Clone)]
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % end
    }
}

/// A reservation of the model: on the counter of one limit.
#[derive(Debug, Clone)]
struct ModelReservation {
    id: ReservationId,
    limit: usize,
    cost: u64,
    created_at: Timestamp,
    /// When it flows back from, and when it was taken.
    charged_at: Timestamp,
    expires_at: Timestamp,
    resets: u64,
    settled: Option<(u64, Timestamp, Adjusted)>,
}

/// The states as they should be.
#[derive(Clone)]
struct Model {
    states: Vec<(ModelState, u64)>,
    reservations: Vec<ModelReservation>,
}

struct Play {
    limits: Vec<Limit>,
    /// Every other limit gives back.
    scopes: [Scope; 2],
    clock: ManualClock,
    store: MemoryStore,
    model: Model,
    /// The last snapshot, with the model of that instant.
    kept: Option<(Vec<u8>, Model)>,
    random: Numbers,
    ids: u128,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut limits = limits_of(20);
        limits.retain(|limit| !limit.is_concurrency());
        let clock = ManualClock::new(START);
        let fresh = limits
            .iter()
            .map(|limit| (ModelState::fresh(limit.form()), 0));
        Self {
            scopes: [Scope::new("kept"), Scope::new("back").giving_back()],
            store: MemoryStore::builder().clock(clock.clone()).build(),
            model: Model {
                states: fresh.collect(),
                reservations: Vec::new(),
            },
            limits,
            clock,
            kept: None,
            random: Numbers(seed | 1),
            ids: 0,
        }
    }

    fn charge(&self, limit: usize, cost: u64) -> Charge<'_> {
        Charge {
            scope: &self.scopes[limit % 2],
            limit: &self.limits[limit],
            key: "key",
            cost,
        }
    }

    /// Ends what has ended in the model, in the order of the ends, and forgets old results.
    fn expire(&mut self) {
        let now = self.clock.now();
        let model = &mut self.model;
        model.reservations.sort_by_key(|one| one.expires_at);
        for one in &model.reservations {
            let (state, resets) = &mut model.states[one.limit];
            let has_ended = one.settled.is_none() && one.expires_at <= now;
            if has_ended && one.limit % 2 == 1 && *resets == one.resets {
                let form = self.limits[one.limit].form();
                state.give_back(form, one.cost, one.charged_at, one.expires_at);
            }
        }
        model.reservations.retain(|one| match &one.settled {
            Some((_, until, _)) => *until > now,
            None => one.expires_at > now,
        });
    }

    fn reserve(&mut self) {
        let limit = usize::try_from(self.random.below(self.limits.len() as u64)).unwrap();
        let (cost, now) = (1 + self.random.below(12), self.clock.now());
        self.ids += 1;
        let id = ReservationId::from_u128(self.ids);
        let ttl = Micros::from_seconds(1 + self.random.below(3_000));
        let part = [ReservedCharge {
            charge: self.charge(limit, cost),
            unit: &TOKENS,
            unit_cost: 1,
            label: "",
        }];
        let answer = self.store.reserve(&ReserveRequest {
            id,
            groups: &[&part],
            estimate: &Costs::from(cost),
            ttl,
            at: None,
        });
        let (state, resets) = &mut self.model.states[limit];
        let form = self.limits[limit].form();
        let outcome = state.charge(form, cost, now, PermitId::from_u128(1));
        let Reserved::Decided { outcomes, made } = answer else {
            unreachable!("there is room");
        };
        assert_eq!(outcomes[0][0], outcome);
        assert_eq!(made.is_some(), outcome.allowed);
        if outcome.allowed {
            self.model.reservations.push(ModelReservation {
                id,
                limit,
                cost,
                created_at: now,
                charged_at: outcome.at + outcome.delay,
                expires_at: now + ttl,
                resets: *resets,
                settled: None,
            });
        }
    }

    fn settle(&mut self) {
        if self.model.reservations.is_empty() {
            return;
        }
        let now = self.clock.now();
        let count = self.model.reservations.len() as u64;
        let index = usize::try_from(self.random.below(count)).unwrap();
        let actual = self.random.below(16);
        let one = &mut self.model.reservations[index];
        let cost = Costs::from(actual);
        let answer = self.store.settle_reservation(&SettleRequest {
            id: one.id,
            actual: Some(&cost).filter(|_| actual > 0),
            at: None,
        });
        if let Some((settled, _, adjusted)) = &one.settled {
            if *settled != actual {
                assert_eq!(answer, SettleAnswer::OtherCost);
                return;
            }
            let SettleAnswer::Settled {
                reservation,
                is_repeated,
            } = answer
            else {
                unreachable!("it is settled so: {answer:?}");
            };
            assert!(is_repeated);
            assert_eq!(reservation.parts[0].adjusted, *adjusted);
            return;
        }
        let SettleAnswer::Settled {
            reservation,
            is_repeated,
        } = answer
        else {
            unreachable!("it is open: {answer:?}");
        };
        assert!(!is_repeated);
        let form = self.limits[one.limit].form();
        let (state, resets) = &mut self.model.states[one.limit];
        let mut wanted = Adjusted::default();
        if *resets == one.resets {
            if actual < one.cost {
                let less = one.cost - actual;
                wanted.given_back = state.given_back(form, less, one.charged_at, now);
                assert!(wanted.given_back <= less);
                state.give_back(form, less, one.charged_at, now);
            } else {
                let (more, room) = (actual - one.cost, state.ask(form, 0, now).remaining);
                wanted.overrun = more.min(room);
                wanted.uncharged = more - wanted.overrun;
                if more > 0 {
                    state.settle(form, more, now);
                }
            }
        }
        wanted.remaining = state.ask(form, 0, now).remaining;
        assert_eq!(reservation.parts[0].adjusted, wanted, "{one:?} at {now:?}");
        one.settled = Some((actual, now + Micros::MINUTE, wanted));
    }

    fn extend(&mut self) {
        let now = self.clock.now();
        let ttl = Micros::from_seconds(1 + self.random.below(100_000));
        let Some(one) = self.model.reservations.first_mut() else {
            return;
        };
        let answer = self.store.extend_reservation(one.id, ttl, None);
        if one.settled.is_some() {
            assert_eq!(answer, ExtendAnswer::Settled);
            return;
        }
        one.expires_at = (now + ttl).min(one.created_at + DAY);
        assert_eq!(answer, ExtendAnswer::Until(one.expires_at));
    }

    fn step(&mut self) {
        let pause = match self.random.below(8) {
            0..4 => 0,
            4..7 => 1 + self.random.below(60_000_000),
            _ => 1 + self.random.below(3_600_000_000),
        };
        self.clock.advance(Micros::new(pause));
        self.expire();
        let limit = usize::try_from(self.random.below(self.limits.len() as u64)).unwrap();
        match self.random.below(24) {
            0..9 => self.reserve(),
            9..16 => self.settle(),
            16..18 => self.extend(),
            18 => {
                let (scope, limit_of) = (&self.scopes[limit % 2], &self.limits[limit]);
                self.store.forget(scope, limit_of, "key");
                let (state, resets) = &mut self.model.states[limit];
                (*state, *resets) = (ModelState::fresh(limit_of.form()), *resets + 1);
                // What was charged in this microsecond looks like one after it.
                self.clock.advance(Micros::new(1));
                self.expire();
            }
            19 => self.store.sweep(),
            20 => {
                let mut bytes = Vec::new();
                self.store.snapshot(&mut bytes).unwrap();
                self.kept = Some((bytes, self.model.clone()));
            }
            21 => self.restart(),
            _ => {
                let cost = self.random.below(4);
                let charges = [self.charge(limit, cost)];
                let outcome = self.store.charge(&Request::new(&charges))[0];
                let now = self.clock.now();
                let (state, _) = &mut self.model.states[limit];
                let form = self.limits[limit].form();
                assert_eq!(
                    outcome,
                    state.charge(form, cost, now, PermitId::from_u128(1))
                );
            }
        }
        self.compare();
    }

    /// Goes on from the last snapshot, as after a crash.
    fn restart(&mut self) {
        let Some((bytes, model)) = self.kept.take() else {
            return;
        };
        let builder = MemoryStore::builder().clock(self.clock.clone());
        (self.store, _) = builder.restore(&bytes[..]).unwrap();
        self.model = model;
        self.expire();
    }

    fn compare(&self) {
        let now = self.clock.now();
        for (limit, (state, _)) in self.model.states.iter().enumerate() {
            let asked = self.store.peek(&Request::new(&[self.charge(limit, 0)]))[0];
            let name = self.limits[limit].algorithm().name();
            let wanted = state.ask(self.limits[limit].form(), 0, now);
            assert_eq!(asked.remaining, wanted.remaining, "{name}");
        }
        let open = self.model.reservations.iter();
        let open = open.filter(|one| one.settled.is_none()).count();
        // Those that only end are forgotten when others are made.
        assert!(self.store.stats().reservations >= open);
    }
}

#[test]
fn any_interleaving_agrees_with_a_model() {
    for seed in 1..120 {
        let mut play = Play::new(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        for step in 0..300 {
            let before = play.random.0;
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play.step()));
            assert!(done.is_ok(), "seed {seed}, step {step}, random {before:#x}");
        }
    }
}

#[test]
fn a_reservation_takes_about_150_bytes_and_100_for_each_counter() {
    let store = MemoryStore::new();
    let limit: Limit = "1000000/day".parse().unwrap();
    let scope = Scope::new("scope");
    let before = store.stats().memory;
    let part = ReservedCharge {
        charge: Charge {
            scope: &scope,
            limit: &limit,
            key: "key",
            cost: 1,
        },
        unit: &TOKENS,
        unit_cost: 1,
        label: "tokens-per-key\nenforce\n0123456789ab",
    };
    let parts = [part; 2];
    for id in 1..=100_u128 {
        let reserved = store.reserve(&ReserveRequest {
            id: ReservationId::from_u128(id),
            groups: &[&parts],
            estimate: &Costs::from(1),
            ttl: Micros::MINUTE,
            at: None,
        });
        assert!(matches!(reserved, Reserved::Decided { made: Some(_), .. }));
    }
    let each = (store.stats().memory - before) / 100;
    assert!((350..750).contains(&each), "{each} bytes for two counters");
    assert_eq!(store.stats().reservations, 100);
}

#[test]
fn a_snapshot_has_the_charge_of_each_open_reservation_and_not_its_settlement() {
    const LIMIT: u64 = 100_000_000;
    let (store, scope) = (MemoryStore::new(), Scope::new("scope"));
    let limit: Limit = format!("{LIMIT}/year").parse().unwrap();
    let charge = |cost| Charge {
        scope: &scope,
        limit: &limit,
        key: "key",
        cost,
    };
    let (ids, settled) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let estimate = Costs::from(7);
    let worker = || {
        for _ in 0..2_000 {
            let id = ReservationId::random();
            let part = [ReservedCharge {
                charge: charge(7),
                unit: &TOKENS,
                unit_cost: 1,
                label: "",
            }];
            ids.lock().unwrap().push(id);
            store.reserve(&ReserveRequest {
                id,
                groups: &[&part],
                estimate: &estimate,
                ttl: Micros::HOUR,
                at: None,
            });
            let actual = Costs::from(2);
            store.settle_reservation(&SettleRequest {
                id,
                actual: Some(&actual),
                at: None,
            });
            settled.fetch_add(2, Ordering::SeqCst);
        }
    };
    std::thread::scope(|threads| {
        (0..3).for_each(|_| drop(threads.spawn(worker)));
        for _ in 0..15 {
            let (before, mut bytes) = (settled.load(Ordering::SeqCst), Vec::new());
            store.snapshot(&mut bytes).unwrap();
            let (restored, _) = MemoryStore::builder().restore(&bytes[..]).unwrap();
            for id in ids.lock().unwrap().iter() {
                let answer = restored.settle_reservation(&SettleRequest {
                    id: *id,
                    actual: None,
                    at: None,
                });
                if let SettleAnswer::Settled { reservation, .. } = answer {
                    assert_eq!(reservation.parts[0].adjusted.given_back, 7);
                }
            }
            let left = restored.peek(&Request::new(&[charge(0)]))[0].remaining;
            assert!(LIMIT - left >= before, "more was given back than was held");
        }
    });
}
