//! A decision about a known key allocates nothing, and all states together have a bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidegate_core::{
    Algorithm, Charge, Limit, MemoryStore, Micros, PermitId, Rate, Request, Scope, Timestamp,
};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Memory of `before` bytes is one of `after` now.
fn count_bytes(before: usize, after: usize) {
    BYTES.set(BYTES.get().wrapping_add(after).wrapping_sub(before));
}

/// The system's allocator, counting for each thread.
struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        count_bytes(0, layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count_bytes(layout.size(), 0);
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        count_bytes(layout.size(), size);
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How many allocations `act` makes.
fn allocations(act: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    act();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn a_decision_on_a_known_key_allocates_nothing() {
    let algorithms = [
        Algorithm::TOKEN_BUCKET,
        Algorithm::TokenBucket {
            max_delay: Micros::SECOND,
        },
        Algorithm::LEAKY_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
        Algorithm::SlidingWindowLog,
    ];
    let store = MemoryStore::new();
    let scope = Scope::new("allocations");
    for algorithm in algorithms {
        let limit = Limit::new(Rate::per_minute(1_000), algorithm).unwrap();
        let charge = Charge {
            scope: &scope,
            limit: &limit,
            key: "key",
            cost: 1,
        };
        // The log grows with its entries: by the time that they leave the window, it has its room.
        for _ in 0..2_000 {
            store.charge_one(&charge);
        }
        let counted = allocations(|| {
            for _ in 0..10_000 {
                store.charge_one(&charge);
            }
        });
        assert_eq!(counted, 0, "{}", algorithm.name());
    }
}

#[test]
fn several_limits_and_permits_allocate_nothing_either() {
    let store = MemoryStore::new();
    let scope = Scope::new("allocations");
    let limits = [
        Limit::new(Rate::per_minute(1_000), Algorithm::TOKEN_BUCKET).unwrap(),
        Limit::new(Rate::per_hour(1_000), Algorithm::FIXED_WINDOW).unwrap(),
        Limit::new(Rate::per_second(1_000), Algorithm::SlidingWindowCounter).unwrap(),
        Limit::concurrent(10).unwrap(),
    ];
    let charges = [0, 1, 2, 3].map(|index| Charge {
        scope: &scope,
        limit: &limits[index],
        key: "key",
        cost: 1,
    });
    let turn = |number: u128| {
        let request = Request::new(&charges)
            .at(Timestamp::from_seconds(1_000))
            .under(PermitId::from_u128(number));
        store.charge(&request);
        store.release(PermitId::from_u128(number));
    };
    // Fill the tables of permits, which keep their room.
    (0..200).for_each(turn);
    assert_eq!(allocations(|| (200..1_200).for_each(turn)), 0);
}

const MOST: usize = 1 << 20;

/// The bytes that a store of at most [`MOST`] takes after `act`, and the store.
fn filled(act: impl FnOnce(&MemoryStore)) -> (usize, MemoryStore) {
    let before = BYTES.get();
    let store = MemoryStore::builder()
        .max_keys(100_000)
        .max_memory(MOST)
        .build();
    act(&store);
    (BYTES.get().wrapping_sub(before), store)
}

#[test]
fn states_of_invented_keys_take_no_more_than_the_store_may() {
    let scope = Scope::new("invented");
    let slots = |slots| Algorithm::SlidingWindowSlots {
        slots,
        strict: false,
    };
    #[rustfmt::skip]
    let table = [
        // algorithm                        keys     charges of each
        (Algorithm::TOKEN_BUCKET,           40_000,  1),
        (slots(Some(60)),                      10_000,  1),
        (slots(Some(3_600)),                   10_000,  1),
        (slots(Some(3_600)),                   600,     2),
        (Algorithm::SlidingWindowLog,       10_000,  1),
        (Algorithm::SlidingWindowLog,       300,     300),
    ];
    for (algorithm, keys, charges) in table {
        let limit = Limit::new(Rate::per_hour(1_000), algorithm).unwrap();
        let (bytes, store) = filled(|store| {
            for key in 0..keys {
                for charge in 0..charges {
                    // Far from each other, so that all slots between them are needed.
                    let at = Timestamp::from_seconds(1_000_000 + charge * 3_000 / charges);
                    let (key, at) = (&format!("key {key}"), Some(at));
                    let charge = Charge {
                        scope: &scope,
                        limit: &limit,
                        key,
                        cost: 1,
                    };
                    let charges = &[charge];
                    assert!(
                        store.charge(&Request {
                            charges,
                            at,
                            permit: None
                        })[0]
                            .allowed
                    );
                }
            }
        });
        let (stats, name) = (store.stats(), algorithm.name());
        assert!(stats.evicted > 0, "{name}: {stats:?}");
        assert!(stats.memory <= MOST + MOST / 16, "{name}: {stats:?}");
        assert!(stats.memory > MOST / 2, "{name}: {stats:?}");
        assert!(
            (MOST / 2..MOST * 3 / 2).contains(&bytes),
            "{name}: {bytes} bytes, {stats:?}"
        );
    }
}

#[test]
fn permits_are_never_evicted_and_new_ones_are_denied_when_there_is_no_memory() {
    let scope = Scope::new("held");
    let limit = Limit::concurrent(5).unwrap();
    let permits = 10_000_u128;
    let take = |store: &MemoryStore, permit: u128| {
        let key = &format!("key {permit}");
        let charges = &[Charge {
            scope: &scope,
            limit: &limit,
            key,
            cost: 1,
        }];
        let permit = Some(PermitId::from_u128(permit));
        store.charge(&Request {
            charges,
            at: None,
            permit,
        })[0]
            .allowed
    };
    let mut held = Vec::new();
    let (bytes, store) = filled(|store| {
        held.extend((0..permits).filter(|permit| take(store, *permit)));
    });
    let stats = store.stats();
    assert!((1_000..8_000).contains(&held.len()), "{}", held.len());
    assert_eq!((stats.permits, stats.evicted), (held.len(), 0));
    assert!(!store.has_room_for_permit());
    assert!(
        (MOST / 2..MOST * 3 / 2).contains(&bytes),
        "{bytes} bytes, {stats:?}"
    );

    // Counters make room for permits, and not the other way round.
    let counter: Limit = "5/hour".parse().unwrap();
    for key in 0..3_000 {
        let key = &format!("counter {key}");
        let charge = Charge {
            scope: &scope,
            limit: &counter,
            key,
            cost: 1,
        };
        assert!(store.charge_one(&charge).allowed);
    }
    assert_eq!(store.stats().permits, held.len());
    assert!(
        store.stats().memory <= MOST + MOST / 16,
        "{:?}",
        store.stats()
    );
    for permit in held.drain(..) {
        assert!(store.release(PermitId::from_u128(permit)), "{permit}");
    }
    assert!(take(&store, permits), "there is room again");
}
