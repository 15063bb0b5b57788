//! The drain: the notice that the program is about to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Asks front ends to finish requests in progress and to begin no others.
///
/// It can be announced before, so that clients which keep their connections move to other servers, and none sends a
/// request while its connection is closed: HTTP/1 answers then carry `Connection: close`.
///
/// Cheap to clone; clones are the same drain. A drain cannot be undone.
#[derive(Debug, Clone, Default)]
pub struct Drain {
    inner: Arc<DrainState>,
}

#[derive(Debug, Default)]
struct DrainState {
    is_announced: AtomicBool,
    has_begun: AtomicBool,
    begun: Notify,
}

impl Drain {
    /// A drain that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces the drain: connections and requests are accepted as before, each HTTP/1 connection for one more
    /// request. Idempotent.
    pub fn announce(&self) {
        self.inner.is_announced.store(true, Ordering::SeqCst);
    }

    /// Whether the drain was announced or has begun.
    pub fn is_announced(&self) -> bool {
        self.inner.is_announced.load(Ordering::SeqCst)
    }

    /// Begins the drain. Idempotent.
    pub fn begin(&self) {
        self.announce();
        self.inner.has_begun.store(true, Ordering::SeqCst);
        self.inner.begun.notify_waiters();
    }

    /// Whether the drain has begun.
    pub fn has_begun(&self) -> bool {
        self.inner.has_begun.load(Ordering::SeqCst)
    }

    /// Waits until the drain begins; returns immediately if it has.
    pub async fn begun(&self) {
        // Registered before the check: a drain that begins between the two is not missed.
        let notified = self.inner.begun.notified();
        if !self.has_begun() {
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_drain_wakes_those_who_wait_and_those_who_come_late() {
        let drain = Drain::new();
        assert!(!drain.has_begun());
        let waits = tokio::spawn({
            let drain = drain.clone();
            async move { drain.begun().await }
        });
        drain.begin();
        drain.begin();
        waits.await.unwrap();
        drain.begun().await;
        assert!(drain.has_begun());
    }
}
