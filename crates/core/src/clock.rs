//! Where the time comes from: the system in production, set by hand in tests.
//!
//! A lint forbids reading a clock elsewhere. Each exception states its reason: the clocks of `listen`, `load`, `redis`
//! and `tidegate`, and the durations that the middleware measures. None of them decides, except tokio's clock in tests.

mod manual;
#[cfg(feature = "system-clock")]
mod system;

pub use manual::ManualClock;
#[cfg(feature = "system-clock")]
pub use system::SystemClock;

use crate::time::Timestamp;

/// A source of time.
///
/// Successive calls on one thread never go back. Threads may see each other's readings out of order
/// by a few microseconds; a store makes up for that.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;

    /// Whether this is the `SystemClock`. A store then reads it directly, which is cheaper than a call through
    /// this trait. No other clock has a reason to say so.
    fn is_system(&self) -> bool {
        false
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn is_system(&self) -> bool {
        (**self).is_system()
    }
}
