//! Why no load could be sent.

use std::io;

/// Why no load could be sent, or a request got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadRunError {
    /// An address cannot be used.
    #[error("`{address}` is not an address: {reason}")]
    Address {
        /// As given.
        address: String,
        /// The mistake.
        reason: String,
    },
    /// A value of a plan or a target cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// No connection.
    #[error("cannot connect to {address}")]
    Connect {
        /// The host and port.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The connection was lost, or the answer could not be read.
    #[error("{0}")]
    Lost(String),
    /// No answer in time.
    #[error("no answer within {0} s")]
    TimedOut(u64),
}

impl LoadRunError {
    /// A short name for the table of errors, without details that differ between requests.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Connect { source, .. } => format!("cannot connect: {}", source.kind()),
            other => other.to_string(),
        }
    }
}

impl From<hyper::Error> for LoadRunError {
    fn from(error: hyper::Error) -> Self {
        let advice = if error.is_parse() {
            "; if the server uses TLS, write https://"
        } else {
            ""
        };
        Self::Lost(format!("connection lost: {error}{advice}"))
    }
}

impl From<io::Error> for LoadRunError {
    fn from(error: io::Error) -> Self {
        Self::Lost(format!("connection lost: {}", error.kind()))
    }
}
