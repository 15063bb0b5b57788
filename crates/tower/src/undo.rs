//! What is undone when a client goes away before its request has gone on: what was charged is given
//! back, by a task of its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use tidegate::Gate;
use tidegate::gate::Receipt;
use tokio::runtime::Handle;
use tokio::time::Sleep;

use crate::error::RequestError;

/// The head of a request, and what was decided about it. In a box, because it is moved with the request.
pub(crate) type DecidedRequest = (Parts, Result<Box<Receipt>, RequestError>);

/// A decision in progress. If dropped, it still completes, and is then given back: the store may have charged it
/// already, and only its answer says what.
pub(crate) struct Cancellable {
    gate: Arc<Gate>,
    /// Until it is made.
    making: Option<Pin<Box<dyn Future<Output = DecidedRequest> + Send>>>,
    /// Known once the decision has to wait.
    runtime: Option<Handle>,
}

impl Cancellable {
    pub(crate) fn new(
        gate: &Arc<Gate>,
        making: Pin<Box<dyn Future<Output = DecidedRequest> + Send>>,
    ) -> Self {
        Self {
            gate: Arc::clone(gate),
            making: Some(making),
            runtime: None,
        }
    }
}

impl Future for Cancellable {
    type Output = DecidedRequest;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<DecidedRequest> {
        // Taken out meanwhile: one that panics, in a description of the user's, is not made to the end.
        let Some(mut making) = self.making.take() else {
            return Poll::Pending;
        };
        let decided = making.as_mut().poll(context);
        if decided.is_pending() {
            self.making = Some(making);
            self.runtime = Handle::try_current().ok();
        }
        decided
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        if let (Some(making), Some(runtime)) = (self.making.take(), &self.runtime) {
            let gate = Arc::clone(&self.gate);
            runtime.spawn(async move {
                if let (_, Ok(receipt)) = making.await {
                    give_back(&gate, *receipt).await;
                }
            });
        }
    }
}

/// A request that waits for its turn. Given up meanwhile, it is given back.
pub(crate) struct Waiting {
    gate: Arc<Gate>,
    /// Until the wait is over.
    receipt: Option<Box<Receipt>>,
    sleep: Pin<Box<Sleep>>,
    runtime: Option<Handle>,
}

impl Waiting {
    pub(crate) fn new(gate: &Arc<Gate>, receipt: Box<Receipt>, delay: Duration) -> Self {
        Self {
            gate: Arc::clone(gate),
            receipt: Some(receipt),
            sleep: Box::pin(tokio::time::sleep(delay)),
            runtime: Handle::try_current().ok(),
        }
    }
}

impl Future for Waiting {
    type Output = Box<Receipt>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Box<Receipt>> {
        if self.sleep.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.receipt.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let (Some(receipt), Some(runtime)) = (self.receipt.take(), &self.runtime) {
            let gate = Arc::clone(&self.gate);
            runtime.spawn(async move { give_back(&gate, *receipt).await });
        }
    }
}

pub(crate) async fn give_back(gate: &Gate, receipt: Receipt) {
    if let Err(error) = gate.give_back(receipt).await {
        tracing::debug!(%error, "what a request was charged could not be given back");
    }
}
