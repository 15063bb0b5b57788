//! The lock of a stripe. Why it spins: `docs/decisions/007-spin-lock.md`.

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// Held for tens of nanoseconds, so that a waiter is best off looking again; taken with one atomic
/// operation and let go with a plain store, half the price of a lock that can put threads to sleep.
pub(super) type Lock<T> = SpinMutex<T, Patience>;
pub(super) type Guard<'a, T> = SpinMutexGuard<'a, T, Patience>;

/// Looks again for a while, and then lets others run: the holder may be one of them.
pub(super) struct Patience;

impl RelaxStrategy for Patience {
    fn relax() {
        for _ in 0..16 {
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}
