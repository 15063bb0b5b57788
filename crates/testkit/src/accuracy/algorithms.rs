//! The algorithms of the suite, with every option that changes what is admitted.

use tidegate_core::{Algorithm, Anchor, Limit};

/// Slots of the suite: long enough that `sync: leased` takes leases of a window of a second.
const SLOTS: u32 = 10;

/// Every algorithm that counts over time.
pub fn all_algorithms() -> Vec<Algorithm> {
    let slots = |strict| Algorithm::SlidingWindowSlots {
        slots: Some(SLOTS),
        strict,
    };
    vec![
        Algorithm::SlidingWindowLog,
        slots(true),
        slots(false),
        Algorithm::SlidingWindowCounter,
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        Algorithm::TOKEN_BUCKET,
        Algorithm::LeakyBucket { shape: true },
        Algorithm::LeakyBucket { shape: false },
    ]
}

/// The algorithm with its options, as in rules.
pub fn title(algorithm: Algorithm) -> String {
    let options = match algorithm {
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        } => ", anchor: first_request",
        Algorithm::FixedWindow { .. } => ", anchor: clock",
        Algorithm::SlidingWindowSlots { strict: true, .. } => ", strict: true",
        Algorithm::LeakyBucket { shape: true } => ", shape: true",
        Algorithm::LeakyBucket { shape: false } => ", shape: false",
        _ => "",
    };
    format!("{}{options}", algorithm.name())
}

/// The most that the algorithm may admit within one window's length, wherever that begins.
///
/// For `leaky_bucket` with `shape: true`, what goes on within it.
pub fn worst_in_window(limit: &Limit) -> u64 {
    let count = limit.rate().count;
    match limit.algorithm() {
        Algorithm::SlidingWindowLog
        | Algorithm::SlidingWindowSlots { strict: true, .. }
        | Algorithm::Concurrency { .. } => count,
        // A delay is rounded up to a microsecond, which can bring the next request that much closer.
        Algorithm::LeakyBucket { shape: true } => count + 1,
        // Two windows, or two rows of slots, can meet in it.
        Algorithm::FixedWindow { .. }
        | Algorithm::SlidingWindowSlots { .. }
        | Algorithm::SlidingWindowCounter => count * 2,
        // A bucket that is full, and what flows back within the window. The suite has none with `max_delay`.
        _ => limit.capacity() + count,
    }
}
