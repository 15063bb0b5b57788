//! Errors of the identity settings.

use std::path::PathBuf;

/// An identity file cannot be used. The message contains no key or secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// It cannot be read.
    #[error("cannot read `{}`: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The table of clients is invalid.
    #[error("{0}")]
    Clients(String),
    /// Keys cannot be fetched with TLS.
    #[error(transparent)]
    Tls(#[from] tidegate_listen::TlsError),
    /// It has no usable verification key.
    #[error("cannot use the key in `{}`: {problem}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// The problem, and what would be accepted.
        problem: String,
    },
}

impl IdentityError {
    pub(crate) fn key(file: &std::path::Path, problem: impl Into<String>) -> Self {
        Self::Key {
            file: file.to_owned(),
            problem: problem.into(),
        }
    }
}
