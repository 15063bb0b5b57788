//! A permit of a concurrency limit, held as long as its request lasts.

use std::sync::Arc;
use std::time::Duration;

use tidegate::gate::Decision;
use tidegate::{Gate, PermitId, Store};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Holds a permit: renewed while this is there, released when it is dropped.
#[derive(Debug)]
pub(crate) struct PermitGuard {
    /// Its task hears when this goes.
    _end: oneshot::Sender<()>,
}

impl PermitGuard {
    /// Holds what was taken by a decision, if there is anything to hold.
    pub(crate) fn of<S: Store>(gate: &Arc<Gate<S>>, decision: &Decision) -> Option<Self> {
        let (permit, lasts) = (decision.permit()?, decision.lease_ttl()?);
        let (end, ended) = oneshot::channel();
        let holding = hold(Arc::clone(gate), permit, Duration::from(lasts) / 2, ended);
        // Without a runtime it ends by itself, when its time is over.
        Handle::try_current().ok()?.spawn(holding);
        Some(Self { _end: end })
    }
}

async fn hold<S: Store>(
    gate: Arc<Gate<S>>,
    permit: PermitId,
    half: Duration,
    mut ended: oneshot::Receiver<()>,
) {
    while timeout(half, &mut ended).await.is_err() {
        match gate.renew(permit).await {
            Ok(true) => {}
            Ok(false) => tracing::debug!("a permit has ended before its request"),
            Err(error) => tracing::debug!(%error, "a permit could not be renewed"),
        }
    }
    if let Err(error) = gate.release(permit).await {
        tracing::debug!(%error, "a permit could not be released; it ends by itself");
    }
}
