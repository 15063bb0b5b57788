//! A connection that can be asked to shut down gracefully.

use std::task::{Context, Poll};

use crate::connection::ConnectionError;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection of either HTTP version.
pub(crate) trait Leaving {
    /// Serves it. Ready when it has ended.
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>>;

    /// Asks it to end after the requests in progress.
    fn leave(&mut self);

    /// Frees the memory that an idle connection does not need.
    fn rest(&mut self);
}
