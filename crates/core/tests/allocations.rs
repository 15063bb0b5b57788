//! A decision about a known key allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidegate_core::{
    Algorithm, Charge, Limit, MemoryStore, Micros, PermitId, Rate, Request, Scope, Timestamp,
};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting for each thread.
struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
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
