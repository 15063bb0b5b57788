//! Bounds the connections of several listeners together. Further ones wait in the kernel's queue.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A budget of connections that listeners share, and a reserve for one of them.
#[derive(Debug, Clone)]
pub struct ConnectionBudget {
    shared: Arc<Semaphore>,
    own: Option<Arc<Semaphore>>,
}

/// One connection, returned when dropped.
pub(crate) type ConnectionPermit = OwnedSemaphorePermit;

impl ConnectionBudget {
    /// A budget of this many connections for all clones.
    pub fn new(connections: usize) -> Self {
        let connections = connections.min(Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(Semaphore::new(connections)),
            own: None,
        }
    }

    /// The same budget with a reserve that no other listener can use.
    #[must_use]
    pub fn with_own(&self, connections: usize) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            own: Some(Self::new(connections).shared),
        }
    }

    /// Waits for a free connection. The semaphores are never closed.
    pub(crate) async fn permit(&self) -> Option<ConnectionPermit> {
        let shared = Arc::clone(&self.shared);
        let Some(own) = &self.own else {
            return shared.acquire_owned().await.ok();
        };
        tokio::select! {
            biased;
            permit = shared.acquire_owned() => permit.ok(),
            permit = Arc::clone(own).acquire_owned() => permit.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_one_listener_has_for_itself_no_other_can_take() {
        let all = ConnectionBudget::new(2);
        let own = all.with_own(1);
        let mut taken = Vec::new();
        for budget in [&all, &all, &own] {
            taken.push(budget.permit().await.unwrap());
        }
        for budget in [&all, &own] {
            let waiting = timeout(Duration::from_secs(1), budget.permit()).await;
            assert!(waiting.is_err());
        }
        taken.pop();
        let waiting = timeout(Duration::from_secs(1), all.permit()).await;
        assert!(waiting.is_err(), "the reserve belongs to the other");
        taken.push(own.permit().await.unwrap());
        taken.clear();
        assert!(all.permit().await.is_some());
    }
}
