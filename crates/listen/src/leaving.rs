//! A connection that can be asked to shut down gracefully.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http2;
use hyper::service::HttpService;
use hyper_util::rt::TokioExecutor;

use crate::connection::ConnectionError;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection of either HTTP version.
pub(crate) trait Leaving {
    /// Serves it. Ready when it has ended.
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>>;

    /// Asks it to end after the requests in progress.
    fn leave(&mut self);

    /// Frees what it does not need while it is idle.
    fn rest(&mut self);
}

impl<I, B, S> Leaving for Pin<Box<http2::Connection<I, S, TokioExecutor>>>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    I: Read + Write + Unpin,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.as_mut().poll(cx).map_err(ConnectionError::Http)
    }

    fn leave(&mut self) {
        self.as_mut().graceful_shutdown();
    }

    /// Its compression tables and windows belong to the connection.
    fn rest(&mut self) {}
}
