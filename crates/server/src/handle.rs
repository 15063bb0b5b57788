//! The wires by which a program steers its running server.

use std::sync::Arc;
use tokio::sync::Notify;

use tidegate_listen::Drain;

/// Steers a running server. Cheap to clone; clones are one and the same.
#[derive(Debug, Clone, Default)]
pub struct Handle {
    drain: Drain,
    reload: Arc<Notify>,
}

impl Handle {
    /// A handle for a server that is about to run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the server finish what is in flight, and then end.
    pub fn shut_down(&self) {
        self.drain.begin();
    }

    /// Lets the server read its rule file, its certificate and what it knows of clients again.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    pub(crate) async fn reloads(&self) {
        self.reload.notified().await;
    }
}
