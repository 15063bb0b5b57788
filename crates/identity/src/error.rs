//! Why a server does not know who its clients are.

use std::path::PathBuf;

/// A file about clients that cannot be used. No key or secret is in its message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// It cannot be read.
    #[error("cannot read `{}`: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The table of clients is not as it should be.
    #[error("{0}")]
    Clients(String),
    /// Keys cannot be fetched with TLS.
    #[error("cannot set up TLS: {0}")]
    Tls(#[source] rustls::Error),
    /// There is no key in it that tokens could be verified with.
    #[error("cannot use the key in `{}`: {problem}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what would be accepted.
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
