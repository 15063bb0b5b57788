//! Why there is no stream.

use std::io;

use tidegate_listen::TlsError;

/// Why there is no stream, or not any more. The client connects again after a pause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdsError {
    /// The server cannot be reached.
    #[error("cannot connect: {0}")]
    Unreachable(#[source] io::Error),
    /// It did not answer in time.
    #[error("no connection within {0} seconds")]
    TimedOut(u64),
    /// A certificate was refused, by this client or by the server.
    #[error("TLS failed: {reason}; see {files}")]
    CertificateRefused {
        /// The reason, as TLS has it.
        reason: String,
        /// The files to look at.
        files: String,
    },
    /// The files for TLS cannot be used.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Lost(String),
    /// The server ended the stream.
    #[error(
        "the server ended the stream with status {code}{}",
        after_colon(message)
    )]
    Ended {
        /// The status of gRPC.
        code: i32,
        /// Its message.
        message: String,
    },
    /// The server does not offer this service.
    #[error("the server answered with HTTP status {0}, not as gRPC does; check the address")]
    NotGrpc(u16),
    /// A message is larger than what is read.
    #[error("a message has {given} bytes, and at most {most} are read")]
    TooLarge {
        /// How many bytes it has.
        given: usize,
        /// How many are read.
        most: usize,
    },
    /// The server sent something else.
    #[error("the response cannot be read: {0}")]
    Malformed(String),
    /// The server does not read what this client sends.
    #[error("the server does not read its requests")]
    Stuck,
}

impl XdsError {
    /// Whether an operator has to look at certificates.
    pub fn is_about_certificates(&self) -> bool {
        matches!(self, Self::CertificateRefused { .. } | Self::Files(_))
    }

    /// Whether a response came and cannot be used.
    pub fn is_about_response(&self) -> bool {
        matches!(self, Self::TooLarge { .. } | Self::Malformed(_))
    }
}

fn after_colon(message: &str) -> String {
    if message.is_empty() {
        return String::new();
    }
    format!(": {message}")
}
