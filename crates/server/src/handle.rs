//! The handle by which a program controls its running server.

use std::sync::Arc;
use tokio::sync::Notify;

use tidegate_listen::Drain;

/// Controls a running server. Cheap to clone; clones control the same server.
#[derive(Debug, Clone, Default)]
pub struct Handle {
    pub(crate) drain: Drain,
    reload: Arc<Notify>,
}

impl Handle {
    /// A handle for a server that is about to run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the server finish requests in flight and end.
    pub fn shut_down(&self) {
        self.drain.begin();
    }

    /// Makes the server reload its rule file, certificates, tokens and identity files, and open its recording anew.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    pub(crate) async fn reloads(&self) {
        self.reload.notified().await;
    }
}
