//! A connection that can be asked to shut down gracefully.

use std::pin::Pin;

use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::TokioExecutor;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection of either HTTP version.
pub(crate) trait Leaving: Future<Output = hyper::Result<()>> {
    /// Asks it to end after the requests in progress.
    fn leave(self: Pin<&mut Self>);
}

impl<I, B, S> Leaving for http1::UpgradeableConnection<I, S>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<BoxError>,
    I: Read + Write + Unpin + Send + 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    fn leave(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, B, S> Leaving for http2::Connection<I, S, TokioExecutor>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    I: Read + Write + Unpin,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    fn leave(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
