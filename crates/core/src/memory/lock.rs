//! The lock of a stripe. Why it spins: `docs/decisions/007-spin-lock.md`.

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// Held for tens of nanoseconds, so spinning is best for a waiter. Taken with one atomic operation
/// and released with a plain store, at half the cost of a lock that can put threads to sleep.
pub(super) type Lock<T> = SpinMutex<T, Patience>;
pub(super) type Guard<'a, T> = SpinMutexGuard<'a, T, Patience>;

/// Spins for a while, then yields, because the holder may be waiting for the processor.
pub(super) struct Patience;

impl RelaxStrategy for Patience {
    fn relax() {
        for _ in 0..16 {
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}
