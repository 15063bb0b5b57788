//! A request and its answer: its id, and an observer, such as an access log, that sees when it begins and ends.

use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, Request, StatusCode};

use crate::Peer;
use crate::request_id::{self, X_REQUEST_ID};

/// Gives every request of a listener an id, and reports requests and answers to an observer.
#[derive(Debug, Clone, Default)]
pub struct Exchanges {
    /// Whether answers have the id of their request.
    pub has_ids: bool,
    /// Whether the service needs the id among the headers of the request, to forward it.
    pub is_forwarding: bool,
    /// Sees requests and answers.
    pub observer: Option<Arc<dyn ExchangeObserver>>,
}

/// Sees requests and answers. Called on the path of the request: it should be quick.
pub trait ExchangeObserver: fmt::Debug + Send + Sync + 'static {
    /// A request has arrived. None if it is not observed. It may add to the request's headers.
    fn begin(&self, request: &mut ArrivedRequest<'_>) -> Option<Box<dyn ObservedExchange>>;
}

/// A request that has arrived.
#[derive(Debug)]
#[non_exhaustive]
pub struct ArrivedRequest<'r> {
    /// Its head.
    pub head: &'r mut Request<()>,
    /// Its id.
    pub id: &'r HeaderValue,
    /// Its peer.
    pub peer: Peer,
}

/// A request that is observed, and its answer.
pub trait ObservedExchange: Send + Sync {
    /// This thread works on the answer from now on, until [`exit`](Self::exit).
    fn enter(&self);

    /// This thread no longer works on it.
    fn exit(&self);

    /// The head of the answer is there.
    fn answered(&mut self, status: StatusCode);

    /// The answer has been sent or aborted, after `bytes` bytes of its body.
    fn ended(&mut self, bytes: u64);
}

/// The id of a request on its way, and its observer.
pub(crate) struct Exchange {
    /// If the answer is to have it.
    pub(crate) id: Option<HeaderValue>,
    pub(crate) observing: Option<Observing>,
}

/// Ends with the answer, however that ends.
pub(crate) struct Observing {
    observed: Box<dyn ObservedExchange>,
    pub(crate) bytes: u64,
}

impl Exchanges {
    /// Gives a request its id, and lets the observer see it.
    pub(crate) fn begin<B>(&self, request: &mut Request<B>, peer: Peer) -> Exchange {
        let given = request_id::given(request.headers());
        let id = given.unwrap_or_else(|| {
            let id = request_id::make();
            if self.is_forwarding {
                // Replaces an id that is not well formed.
                request.headers_mut().insert(&X_REQUEST_ID, id.clone());
            }
            id
        });
        let begun = self.observer.as_ref().and_then(|observer| {
            // Without its body, whatever type that has.
            let mut head = Request::new(());
            *head.method_mut() = request.method().clone();
            *head.uri_mut() = request.uri().clone();
            std::mem::swap(head.headers_mut(), request.headers_mut());
            let begun = observer.begin(&mut ArrivedRequest {
                head: &mut head,
                id: &id,
                peer,
            });
            std::mem::swap(head.headers_mut(), request.headers_mut());
            begun
        });
        let observing = begun.map(|observed| Observing { observed, bytes: 0 });
        let id = self.has_ids.then_some(id);
        Exchange { id, observing }
    }
}

impl Observing {
    /// Does a step of the work on the answer.
    pub(crate) fn step<T>(&self, step: impl FnOnce() -> T) -> T {
        self.observed.enter();
        let result = step();
        self.observed.exit();
        result
    }

    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.observed.answered(status);
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        self.observed.ended(self.bytes);
    }
}
