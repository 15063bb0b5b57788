//! The time of deadlines and pauses: monotonic, this process's own, and never that of a decision.

use tokio::time::Instant;

/// The present instant. Tests hold it with the runtime's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's clock is the one that tests inject here"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
