//! Answers HTTP/2 requests on the task of their connection where they need not wait, and on tasks of their own where
//! they do.
//!
//! hyper starts a task for each request. Most requests here are decided without waiting, so a task would cost more than
//! the decision. The requests that arrived together are begun together, after all of them were read: so their answers
//! share one write.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Executor, Read, Write};
use hyper::server::conn::http2;
use parking_lot::Mutex;

use crate::connection::ConnectionError;
use crate::leaving::Leaving;
use crate::service::{ConnectionService, Handler};

type BegunRequest = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Collects the futures that hyper would spawn, until the connection has read all arrived bytes.
#[derive(Clone, Default)]
pub(crate) struct InlineExecutor {
    begun: Arc<Mutex<Vec<BegunRequest>>>,
}

impl<F> Executor<F> for InlineExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        self.begun.lock().push(Box::pin(request));
    }
}

/// An HTTP/2 connection.
pub(crate) struct InlineConnection<I, S: Handler> {
    // Boxed, so that the tasks of HTTP/1 connections need no room for it.
    connection: Pin<Box<http2::Connection<I, ConnectionService<S>, InlineExecutor>>>,
    executor: InlineExecutor,
    /// Empty; its memory is used for the next requests.
    spare: Vec<BegunRequest>,
}

impl<I, S> InlineConnection<I, S>
where
    I: Read + Write + Unpin,
    S: Handler,
{
    /// Serves `io`. `settings` sets up the connection, with an executor of its own.
    pub(crate) fn new(
        settings: impl FnOnce(InlineExecutor) -> http2::Builder<InlineExecutor>,
        io: I,
        service: ConnectionService<S>,
    ) -> Self {
        let executor = InlineExecutor::default();
        let connection = settings(executor.clone()).serve_connection(io, service);
        Self {
            connection: Box::pin(connection),
            executor,
            spare: Vec::new(),
        }
    }

    /// Begins the requests that have arrived. Those that have to wait become tasks. False if there are none.
    fn begin_requests(&mut self, cx: &mut Context<'_>) -> bool {
        let mut begun = mem::replace(&mut *self.executor.begun.lock(), mem::take(&mut self.spare));
        let has_begun = !begun.is_empty();
        for mut request in begun.drain(..) {
            if request.as_mut().poll(cx).is_pending() {
                tokio::spawn(request);
            }
        }
        self.spare = begun;
        has_begun
    }
}

impl<I, S> Leaving for InlineConnection<I, S>
where
    I: Read + Write + Unpin,
    S: Handler,
{
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            let served = self.connection.as_mut().poll(cx);
            let has_begun = self.begin_requests(cx);
            // Polled again after answers, to write them.
            if served.is_ready() || !has_begun {
                return served.map_err(ConnectionError::Http);
            }
        }
    }

    fn leave(&mut self) {
        self.connection.as_mut().graceful_shutdown();
    }

    /// Its compression tables and windows belong to the connection.
    fn rest(&mut self) {}
}
