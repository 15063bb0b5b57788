//! The state of a connection: recorded by its socket and its service, and read by the task that applies its timeouts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::stall::ConnectionPhase;

/// Counters that the parts of a connection share.
///
/// They are read by the connection's own task only to detect long waits: their order does not matter, and all
/// accesses are relaxed.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// Whether heads can be timed, because they arrive one at a time: HTTP/1.
    has_heads: bool,
    requests: AtomicU64,
    in_flight: AtomicU64,
    has_read: AtomicBool,
    is_closing: AtomicBool,
    is_tunnel: AtomicBool,
    /// Notified when the socket is dropped.
    let_go: Notify,
}

impl ConnectionState {
    pub(crate) fn new(has_heads: bool) -> Self {
        Self {
            has_heads,
            requests: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            has_read: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_tunnel: AtomicBool::new(false),
            let_go: Notify::new(),
        }
    }

    /// Bytes have arrived. With no request in progress they begin or continue a head.
    pub(crate) fn note_read(&self) {
        if self.in_flight.load(Ordering::Relaxed) == 0 {
            self.has_read.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn phase(&self) -> ConnectionPhase {
        let requests = self.requests.load(Ordering::Relaxed);
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            ConnectionPhase::Busy(requests)
        } else {
            let has_read = self.has_read.load(Ordering::Relaxed);
            match (has_read, requests) {
                (false, 0) => ConnectionPhase::Fresh,
                (true, requests) if self.has_heads => ConnectionPhase::Head(requests),
                (_, requests) => ConnectionPhase::Idle(requests),
            }
        }
    }

    /// Makes answers carry `Connection: close`.
    pub(crate) fn close_after_answer(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Marks the connection as upgraded to another protocol.
    pub(crate) fn becomes_tunnel(&self) {
        self.is_tunnel.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        self.is_tunnel.load(Ordering::Relaxed)
    }

    pub(crate) fn let_go(&self) {
        self.let_go.notify_one();
    }

    /// Waits until the socket is dropped.
    pub(crate) async fn is_let_go(&self) {
        self.let_go.notified().await;
    }

    /// Whether an answer needs `Connection: close`. HTTP/2 has GOAWAY for that.
    pub(crate) fn says_close(&self) -> bool {
        self.has_heads && self.is_closing.load(Ordering::Relaxed)
    }
}

/// A request in progress, until the body of its answer is read or dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionState>);

impl RequestGuard {
    pub(crate) fn begin(state: &Arc<ConnectionState>) -> Self {
        state.requests.fetch_add(1, Ordering::Relaxed);
        state.in_flight.fetch_add(1, Ordering::Relaxed);
        state.has_read.store(false, Ordering::Relaxed);
        Self(Arc::clone(state))
    }

    pub(crate) fn state(&self) -> &ConnectionState {
        &self.0
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http1_connection_goes_from_head_to_answer_to_idle() {
        let state = Arc::new(ConnectionState::new(true));
        assert_eq!(state.phase(), ConnectionPhase::Fresh);
        state.note_read();
        assert_eq!(state.phase(), ConnectionPhase::Head(0));
        let first = RequestGuard::begin(&state);
        state.note_read();
        assert_eq!(state.phase(), ConnectionPhase::Busy(1));
        drop(first);
        assert_eq!(state.phase(), ConnectionPhase::Idle(1));
        state.note_read();
        assert_eq!(state.phase(), ConnectionPhase::Head(1));
    }

    #[test]
    fn an_http2_connection_is_idle_whatever_it_reads() {
        let state = Arc::new(ConnectionState::new(false));
        assert_eq!(state.phase(), ConnectionPhase::Fresh);
        state.note_read();
        assert_eq!(state.phase(), ConnectionPhase::Idle(0));
        let (first, second) = (RequestGuard::begin(&state), RequestGuard::begin(&state));
        drop(first);
        assert_eq!(state.phase(), ConnectionPhase::Busy(2));
        drop(second);
        assert_eq!(state.phase(), ConnectionPhase::Idle(2));
    }
}
