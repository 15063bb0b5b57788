//! A permit of a concurrency limit, held as long as its request lasts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate::gate::Decision;
use tidegate::{Gate, PermitId};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::background::BackgroundSlot;

/// The permit of a concurrency limit that a request holds, as an extension of the request: renewed while a clone
/// of it exists, released when the last one is dropped.
///
/// The middleware holds it until the answer has ended. A service whose work continues longer, such as a task
/// that it has started and does not wait for, keeps a clone until the work is done.
#[derive(Debug, Clone)]
pub struct RequestPermit {
    guard: Arc<PermitGuard>,
}

#[derive(Debug)]
struct PermitGuard {
    lasts: Duration,
    runtime: Handle,
    /// Whether it ends by itself instead of being released.
    is_left: Arc<AtomicBool>,
    /// Held while the request continues without its client.
    slot: OnceLock<BackgroundSlot>,
    /// Its task is notified when this is dropped.
    _end: oneshot::Sender<()>,
}

impl RequestPermit {
    /// Holds what was taken by a decision, if there is anything to hold.
    pub(crate) fn of(gate: &Arc<Gate>, decision: &Decision) -> Option<Self> {
        let (permit, lasts) = (decision.permit()?, decision.permit_ttl()?);
        // Without a runtime it ends by itself, when its time is over.
        let runtime = Handle::try_current().ok()?;
        let is_left = Arc::new(AtomicBool::new(false));
        let (end, ended) = oneshot::channel();
        let holding = Holding {
            gate: Arc::clone(gate),
            permit,
            lasts,
            is_left: Arc::clone(&is_left),
        };
        runtime.spawn(holding.hold(ended));
        let guard = Arc::new(PermitGuard {
            lasts,
            runtime,
            is_left,
            slot: OnceLock::new(),
            _end: end,
        });
        Some(Self { guard })
    }

    /// How long it lasts if it is not renewed.
    pub(crate) fn lasts(&self) -> Duration {
        self.guard.lasts
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.guard.runtime
    }

    /// Where the place of the request in the background is kept, once it has one.
    pub(crate) fn slot(&self) -> &OnceLock<BackgroundSlot> {
        &self.guard.slot
    }

    /// Lets it end by itself, the `lease_ttl` of its rule after its last clone is dropped: for work whose end is not
    /// known.
    pub fn leave(&self) {
        self.guard.is_left.store(true, Ordering::Relaxed);
    }
}

struct Holding {
    gate: Arc<Gate>,
    permit: PermitId,
    lasts: Duration,
    is_left: Arc<AtomicBool>,
}

impl Holding {
    async fn hold(self, mut ended: oneshot::Receiver<()>) {
        while timeout(self.lasts / 2, &mut ended).await.is_err() {
            self.renew().await;
        }
        if self.is_left.load(Ordering::Relaxed) {
            self.renew().await;
        } else if let Err(error) = self.gate.release(self.permit).await {
            tracing::debug!(%error, "a permit could not be released; it ends by itself");
        }
    }

    async fn renew(&self) {
        match self.gate.renew(self.permit).await {
            Ok(true) => {}
            Ok(false) => tracing::debug!("a permit has ended before its request"),
            Err(error) => tracing::debug!(%error, "a permit could not be renewed"),
        }
    }
}
