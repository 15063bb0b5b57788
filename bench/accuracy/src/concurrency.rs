//! A limit on requests in progress: never more than the limit at once, also when clients vanish and never release.
//!
//! The memory store with a clock, next to a plain list of who holds a permit until when.

use std::collections::BTreeMap;

use serde_json::json;
use tidegate_core::{
    Algorithm, Charge, Limit, ManualClock, MemoryStore, Micros, PermitId, Rate, Request, Scope,
    Timestamp,
};
use tidegate_testkit::accuracy::{ArrivalPattern, ArrivalPlan, ArrivalRandom, title};
use tidegate_testkit::timeline::START;

const HOLDERS: u64 = 10;
/// How long a permit lasts that is not released.
const LASTS: Micros = Micros::SECOND;
/// The average time until a request is done, in microseconds: at one request in 10 ms, twice as many as may be at once.
const BUSY: f64 = 200_000.0;
/// One client in so many vanishes.
const VANISHES: u64 = 20;

pub fn run() {
    let algorithm = Algorithm::Concurrency { lease_ttl: LASTS };
    let limit = Limit::new(Rate::concurrent(HOLDERS), algorithm).expect("a sound limit");
    let plan = ArrivalPlan {
        pattern: ArrivalPattern::Poisson { percent: 100 },
        count: 100,
        window: Micros::SECOND,
        windows: 60,
        seed: 7,
    };
    let mut holders = Holders::new(&limit);
    let mut random = ArrivalRandom::new(11);
    let (mut admitted, mut reference, mut different, mut most) = (0, 0, 0, 0);
    let arrivals = plan.draw();
    for arrival in &arrivals {
        holders.release_until(arrival.at);
        let held = holders.held_at(arrival.at);
        let busy = Micros::new((-random.unit().ln() * BUSY) as u64);
        let vanishes = random.below(VANISHES) == 0;
        let allowed = holders.charge(arrival.at, busy, vanishes);
        let expected = held < HOLDERS;
        admitted += u64::from(allowed);
        reference += u64::from(expected);
        different += u64::from(allowed != expected);
        most = most.max(holders.held_at(arrival.at));
    }
    let row = json!({
        "scenario": "concurrency",
        "contender": "tidegate",
        "store": "memory",
        "instances": 1,
        "virtual": true,
        "algorithm": title(algorithm),
        "limit": HOLDERS,
        "worst": HOLDERS,
        "arrivals": arrivals.len(),
        "admitted": admitted,
        "most": most,
        "over_promise": most.saturating_sub(HOLDERS),
        "different": different,
        "reference": reference,
        "over_reference": u64::saturating_sub(admitted, reference),
        "under_reference": u64::saturating_sub(reference, admitted),
        "over_ideal": 0,
        "under_ideal": 0,
        "retries": null,
        "per_second": null,
        "late": null,
    });
    println!("{row}");
}

/// The store, and who holds a permit as far as clients know.
struct Holders {
    clock: ManualClock,
    store: MemoryStore,
    scope: Scope,
    limit: Limit,
    /// When each permit that was granted is over, by release or by itself.
    over_at: Vec<Timestamp>,
    /// Releases that are due.
    releases: BTreeMap<(Timestamp, u128), PermitId>,
    granted: u128,
}

impl Holders {
    fn new(limit: &Limit) -> Self {
        let clock = ManualClock::new(START);
        Self {
            store: MemoryStore::builder().clock(clock.clone()).build(),
            clock,
            scope: Scope::new("accuracy"),
            limit: limit.clone(),
            over_at: Vec::new(),
            releases: BTreeMap::new(),
            granted: 0,
        }
    }

    /// Releases what is done by this time, each permit at its own.
    fn release_until(&mut self, now: Timestamp) {
        while let Some(entry) = self.releases.first_entry() {
            if entry.key().0 > now {
                break;
            }
            self.clock.set(entry.key().0);
            let permit = entry.remove();
            assert!(self.store.release(permit), "it is still held");
        }
        self.clock.set(now);
    }

    fn held_at(&self, now: Timestamp) -> u64 {
        self.over_at.iter().filter(|over| **over > now).count() as u64
    }

    /// Asks for a permit, to be released after `busy` unless the client vanishes or the permit ends before.
    fn charge(&mut self, now: Timestamp, busy: Micros, vanishes: bool) -> bool {
        let permit = PermitId::from_u128(self.granted + 1);
        let charges = [Charge {
            scope: &self.scope,
            limit: &self.limit,
            key: "key",
            cost: 1,
        }];
        let outcomes = self.store.charge(&Request::new(&charges).under(permit));
        if !outcomes[0].allowed {
            return false;
        }
        self.granted += 1;
        let is_released = !vanishes && busy < LASTS;
        let over = now + if is_released { busy } else { LASTS };
        self.over_at.push(over);
        if is_released {
            self.releases.insert((over, self.granted), permit);
        }
        true
    }
}
