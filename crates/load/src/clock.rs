//! The clock by which load is sent and measured.

use std::time::Instant;

/// The current time.
#[expect(
    clippy::disallowed_methods,
    reason = "load is measured by the clock of this machine, and decides nothing"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
