//! The keys of the histories: every algorithm, with windows that pass within a history, and pairs of limits. Some keys
//! are reserved and settled: their windows last, so that it only matters in which order that happens.

use std::sync::Arc;

use tidegate_core::{Algorithm, Anchor, Charge, Limit, Micros, Rate, Scope};
use tidegate_testkit::linearizability::HistoryCharge;
use tidegate_testkit::redis::slot_of;

/// One or two limits, and the key that they count for.
pub(super) struct HistoryKey {
    pub(super) number: u64,
    key: String,
    limits: Vec<Limit>,
    scopes: Vec<Scope>,
    reserved: KeyUse,
}

/// What is done with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyUse {
    Charged,
    /// Reserved, and settled for no more than was reserved: a log would show when more was charged.
    Reserved,
    /// Reserved, and settled for less or more.
    ReservedWithOverruns,
}

impl HistoryKey {
    pub(super) fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// What the call with this number costs after all, if it is reserved and settled.
    pub(super) fn settled(&self, call: u64) -> Option<u64> {
        match self.reserved {
            KeyUse::Charged => None,
            _ if call.is_multiple_of(4) => None,
            // Mostly nothing, so that there is room for the next.
            KeyUse::ReservedWithOverruns if call % 11 == 2 => Some(5),
            KeyUse::Reserved | KeyUse::ReservedWithOverruns => Some(u64::from(call % 7 == 1)),
        }
    }

    /// Whether calls are reservations.
    pub(super) fn is_reserved(&self) -> bool {
        self.reserved != KeyUse::Charged
    }

    /// What the call with this number charges: of two limits one, the other or both.
    pub(super) fn charges(&self, call: u64) -> Vec<HistoryCharge> {
        let count = self.limits.len() as u64;
        let chosen = (0..count).filter(|limit| count == 1 || call % 5 != *limit);
        let charges = chosen.map(|limit| HistoryCharge {
            limit: usize::try_from(limit).unwrap(),
            cost: 1 + (call + limit) % 3,
        });
        charges.collect()
    }

    pub(super) fn charge(&self, charge: HistoryCharge) -> Charge<'_> {
        Charge {
            scope: &self.scopes[charge.limit],
            limit: &self.limits[charge.limit],
            key: &self.key,
            cost: charge.cost,
        }
    }
}

/// Keys, one after the other, in turns in some slots of a cluster or in any.
pub(super) struct HistoryKeys {
    sets: Vec<(Vec<Limit>, KeyUse)>,
    slots: &'static [u16],
    number: u64,
    names: u64,
}

impl HistoryKeys {
    pub(super) fn new(slots: &'static [u16]) -> Self {
        Self {
            sets: key_uses(),
            slots,
            number: 0,
            names: 0,
        }
    }

    pub(super) fn next(&mut self) -> Arc<HistoryKey> {
        let index = usize::try_from(self.number).unwrap();
        let (limits, reserved) = self.sets[index % self.sets.len()].clone();
        let slot = self.slots.get(index % self.slots.len().max(1));
        self.number += 1;
        let key = loop {
            self.names += 1;
            let name = format!("key-{}", self.names);
            if slot.is_none_or(|slot| slot_of(&format!("{{{name}}}")) == *slot) {
                break name;
            }
        };
        Arc::new(HistoryKey {
            number: self.number,
            key,
            scopes: (0..limits.len())
                .map(|limit| Scope::new(&format!("linear-{limit}")))
                .collect(),
            limits,
            reserved,
        })
    }
}

/// Charged keys and reserved ones, in turns.
fn key_uses() -> Vec<(Vec<Limit>, KeyUse)> {
    let charged = limits().into_iter().map(|limits| (limits, KeyUse::Charged));
    let reserved = reserved_limits();
    let mut uses = Vec::new();
    for (index, charged) in charged.enumerate() {
        uses.push(charged);
        uses.push(reserved[index % reserved.len()].clone());
    }
    uses
}

fn reserved_limits() -> Vec<(Vec<Limit>, KeyUse)> {
    let daily = |count, algorithm| Limit::new(Rate::new(count, Micros::DAY), algorithm).unwrap();
    let first_request = Algorithm::FixedWindow {
        anchor: Anchor::FirstRequest,
    };
    let slots = Algorithm::SlidingWindowSlots {
        slots: Some(24),
        strict: true,
    };
    let window = daily(30, Algorithm::FIXED_WINDOW);
    let log = daily(25, Algorithm::SlidingWindowLog);
    let counter = daily(40, Algorithm::SlidingWindowCounter);
    vec![
        (vec![window.clone()], KeyUse::ReservedWithOverruns),
        (vec![log.clone()], KeyUse::Reserved),
        (vec![counter.clone()], KeyUse::ReservedWithOverruns),
        (vec![window, counter], KeyUse::ReservedWithOverruns),
        (vec![daily(30, slots)], KeyUse::ReservedWithOverruns),
        (vec![daily(35, first_request)], KeyUse::ReservedWithOverruns),
        (
            vec![log, daily(45, Algorithm::FIXED_WINDOW)],
            KeyUse::Reserved,
        ),
    ]
}

fn limits() -> Vec<Vec<Limit>> {
    let limit = |count, millis, algorithm| {
        Limit::new(Rate::new(count, Micros::from_millis(millis)), algorithm).unwrap()
    };
    let first_request = Algorithm::FixedWindow {
        anchor: Anchor::FirstRequest,
    };
    let slots = |slots, strict| Algorithm::SlidingWindowSlots {
        slots: Some(slots),
        strict,
    };
    let waiting = Algorithm::TokenBucket {
        max_delay: Micros::from_millis(50),
    };
    let holders = Rate::concurrent(20);
    let lease_ttl = Micros::from_millis(60);
    let permits = Limit::new(holders, Algorithm::Concurrency { lease_ttl }).unwrap();
    let bucket: Limit = "400/second burst 60".parse().unwrap();
    let log = limit(30, 50, Algorithm::SlidingWindowLog);
    let window = limit(60, 100, Algorithm::FIXED_WINDOW);
    let counter = limit(40, 80, Algorithm::SlidingWindowCounter);
    vec![
        vec![bucket.clone()],
        vec!["100/minute".parse().unwrap()],
        vec![window.clone()],
        vec![log.clone()],
        vec![counter.clone()],
        vec![limit(40, 60, slots(20, false))],
        vec![permits.clone()],
        vec![bucket.clone(), window.clone()],
        vec![limit(50, 50, first_request)],
        vec![limit(40, 60, slots(10, true))],
        vec![limit(50, 200, Algorithm::LEAKY_BUCKET)],
        vec![limit(30, 100, Algorithm::LeakyBucket { shape: false })],
        vec![limit(30, 100, waiting)],
        vec![log, permits],
        vec![limit(80, 60_000, Algorithm::SlidingWindowLog)],
        vec![counter, limit(90, 3_600_000, Algorithm::TOKEN_BUCKET)],
        vec![limit(100, 3_600_000, first_request)],
    ]
}
