//! In place of envoyproxy/ratelimit, from the outside: the program started as Envoy Gateway, its AI Gateway and Istio start
//! theirs, a management server that sends what they send, and real calls.
//!
//! `policy.rs` writes policies as Envoy Gateway does: as limits for the service, and as actions for Envoy. `scenarios.rs` is the
//! table of what it expects of them; `called.rs` plays it by calls, `proxied.rs` by requests through a real Envoy.

mod budgets;
mod called;
mod confined;
mod deployed;
mod istio;
mod policy;
mod proxied;
mod scenarios;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

const HOUR: u64 = 3600;
pub(crate) const MINUTE: u64 = 60;

/// Plays something within one window of the clock. If it fails and another window began meanwhile, it is played once more,
/// from its beginning: it has to start with fresh counters.
pub(crate) fn within_a_window(seconds: u64, play: impl Fn()) {
    let before = window(seconds);
    match catch_unwind(AssertUnwindSafe(&play)) {
        Err(_) if window(seconds) != before => play(),
        Err(failure) => resume_unwind(failure),
        Ok(()) => {}
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the windows of a server are those of the machine's clock"
)]
fn window(seconds: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs() / seconds
}
