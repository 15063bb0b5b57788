//! Why a request is not decided. Being denied is no error.

use tidegate::AttributeError;
use tidegate::gate::ReserveError;

/// Why a request was not decided. One that could not be understood is answered with 400, one for which there is no room
/// with 503.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// An invalid attribute: a path that cannot be decoded, or a value that is too long.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    /// Several `Host` headers: it is not known which one counts.
    #[error("the request has more than one `Host` header; send one")]
    SeveralHosts,
    /// A header by which clients are counted, several times with different values: servers do not agree
    /// on which one counts.
    #[error("the header `{name}` is there several times with different values; send it once")]
    DifferentValues {
        /// Its name.
        name: String,
    },
    /// A header that some servers take for another, which is read here.
    #[error("some servers take the header `{name}` for `{read}`, which is read here; leave it out")]
    TwinHeader {
        /// Its name.
        name: String,
        /// The name of the header that it could be mistaken for.
        read: String,
    },
    /// A `Host` that is not text.
    #[error("the `Host` header is not printable ASCII")]
    UnreadableHost,
    /// A `Host` that differs from the URI: a service may use either.
    #[error("the request's URI names one host, and `Host` another; send the same")]
    TwoHosts,
    /// No host, where a rule asks for one: without it the request would escape that rule.
    #[error("the request has no host, and there is a rule that asks for it; send `Host`")]
    NoHost,
    /// Too many estimates wait to be settled: one more cannot be recorded, and nothing was charged.
    #[error(transparent)]
    NotReserved(#[from] ReserveError),
}
