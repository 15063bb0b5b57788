//! Why a server does not run.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_identity::IdentityError;
use tidegate_listen::TlsError;

use crate::config::LineTarget;
use crate::data_dir::MadeTokenError;
use crate::rulebook::OpenError;

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There are no rules to start with.
    #[error(transparent)]
    Rules(#[from] OpenError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The identity settings cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The prices of models cannot be used.
    #[error("{0}")]
    Prices(String),
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {}", advice(source, flag))]
    Bind {
        /// The flag that sets it.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A Unix socket cannot be bound.
    #[error("cannot listen on the socket `{}`: {source}; check its folder, and that nothing but a socket is there", path.display())]
    BindSocket {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The gateway is in front of its own server.
    #[error(
        "the upstream {upstream} is where this server itself listens for {front_end} ({address}); name the server that the gateway should be in front of"
    )]
    OwnUpstream {
        /// The upstream as written.
        upstream: String,
        /// The front end that listens there.
        front_end: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// The generated token is not secret.
    #[error(transparent)]
    MadeToken(#[from] MadeTokenError),
    /// The access log cannot be opened.
    #[error("cannot open the access log {target}: {source}; check `access_log`")]
    AccessLog {
        /// Where it should be written.
        target: LineTarget,
        /// The error of the system.
        source: std::io::Error,
    },
    /// TLS for the collector of telemetry cannot be set up.
    #[error("cannot set up TLS for `otlp`: {0}")]
    Otlp(#[source] tidegate_listen::TlsError),
    /// The threads for connections cannot be started.
    #[error("cannot start threads for connections: {0}")]
    Threads(#[source] std::io::Error),
}

/// Advice for an address that cannot be bound.
fn advice(error: &std::io::Error, flag: &str) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!(
                "the port is in use; stop the program that has it, or choose another with {flag} (port 0 takes a free one)"
            )
        }
        std::io::ErrorKind::PermissionDenied => {
            format!(
                "{error}; ports below 1024 need the right to bind them, choose a higher one with {flag}"
            )
        }
        std::io::ErrorKind::AddrNotAvailable => {
            format!(
                "{error}; this machine does not have that address, choose one that it has, or 0.0.0.0 for all, with {flag}"
            )
        }
        _ => error.to_string(),
    }
}
