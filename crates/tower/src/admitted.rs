//! A request that may go on, for servers whose services are not tower services: a binding to another language calls
//! the service itself, and then does what is left.

use std::sync::Arc;

use http::Response;
use tidegate::gate::{Decision, Receipt};
use tidegate::headers::Headers;

use crate::future::RequestHandler;
use crate::hold::RequestPermit;
use crate::undo;
use crate::watch::Watch;

/// A request that [may go on](crate::RateLimitLayer::decide). The caller waits for the decision's
/// [delay](Decision::delay), calls its service, and puts [headers](Self::headers) on the answer.
#[must_use = "its service is to be called, or what it was charged is to be given back"]
pub struct AdmittedRequest {
    handler: Arc<RequestHandler>,
    receipt: Box<Receipt>,
    /// Since the service is called.
    watch: Option<Watch>,
}

impl AdmittedRequest {
    pub(crate) fn new(handler: Arc<RequestHandler>, receipt: Box<Receipt>) -> Self {
        Self {
            handler,
            receipt,
            watch: None,
        }
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        self.receipt.decision()
    }

    /// The headers of its answer. They replace those of the same names that the service has set.
    pub fn headers(&self) -> Headers {
        let settings = &self.handler.settings.denial.headers;
        self.decision().headers(settings)
    }

    /// Holds the permit of a concurrency limit until the last clone is dropped; none if the request takes none. Called
    /// once, before the request waits, in the context of a Tokio runtime with time.
    pub fn hold(&self) -> Option<RequestPermit> {
        RequestPermit::of(&self.handler.gate, self.decision())
    }

    /// Gives back what it was charged: it does not go on after all.
    pub async fn give_back(self) {
        undo::give_back(&self.handler.gate, *self.receipt).await;
    }

    /// Begins to measure the service, which is called now, for rules with adaptive limits.
    pub fn begin(&mut self) {
        self.watch = Some(Watch::begin(self.receipt.decision()));
    }

    /// Reports the head of the service's answer to rules with adaptive limits; none if the service failed. Only the
    /// first report after [`begin`](Self::begin) counts.
    pub fn answered<B>(&mut self, answer: Option<&Response<B>>) {
        if let Some(watch) = self.watch.take() {
            watch.report(self.receipt.decision(), answer);
        }
    }
}

impl std::fmt::Debug for AdmittedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmittedRequest")
            .field("decision", self.decision())
            .finish_non_exhaustive()
    }
}
