//! How many connections several listeners may have together. More wait, not yet accepted.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections that listeners share, and some that one has for itself.
#[derive(Debug, Clone)]
pub struct ConnectionBudget {
    shared: Arc<Semaphore>,
    own: Option<Arc<Semaphore>>,
}

/// One connection, given back when it is dropped.
pub(crate) type ConnectionPermit = OwnedSemaphorePermit;

impl ConnectionBudget {
    /// So many connections, for all that have a clone of it.
    pub fn of(connections: usize) -> Self {
        let connections = connections.min(Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(Semaphore::new(connections)),
            own: None,
        }
    }

    /// The same, and so many more that no other listener can take.
    #[must_use]
    pub fn with_own(&self, connections: usize) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            own: Some(Self::of(connections).shared),
        }
    }

    /// Waits for a connection to be free. Nothing is closed for it: semaphores here are not.
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
        let all = ConnectionBudget::of(2);
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
        assert!(waiting.is_err(), "it was of the other's own");
        taken.push(own.permit().await.unwrap());
        taken.clear();
        assert!(all.permit().await.is_some());
    }
}
