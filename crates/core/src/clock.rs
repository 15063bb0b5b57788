//! Where the time comes from: the system in production, the test's hand in tests.
//!
//! Nothing else in the workspace reads a clock; a lint says so.

mod manual;
mod system;

pub use manual::ManualClock;
pub use system::SystemClock;

use crate::time::Timestamp;

/// A source of time.
///
/// Successive calls on one thread never go back. Threads may see each other's readings out of order
/// by a few microseconds; a store makes up for that.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}
