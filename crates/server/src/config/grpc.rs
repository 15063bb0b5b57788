//! The settings of the gRPC listener: its address or socket, TLS of its own, and the age of its connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate::document::{Fields, Problems};
use tidegate_listen::ConnectionAge;

use super::TlsFiles;
use super::read::{address_or_off, setting, span, tls_files};

/// How gRPC is served, next to its TCP address.
#[derive(Debug, Clone, Default)]
pub struct GrpcSettings {
    /// The Unix socket that it is served on in place of a TCP address.
    pub socket: Option<PathBuf>,
    /// A certificate of its own.
    pub tls: Option<TlsFiles>,
    /// The authorities of client certificates that it requires with its own certificate, as a PEM file.
    pub client_ca: Option<PathBuf>,
    /// The DNS name that those certificates must be for.
    pub client_name: Option<String>,
    /// How old connections may get.
    pub max_age: Option<ConnectionAge>,
}

/// What `grpc` says.
#[derive(Clone)]
enum GrpcAddress {
    Off,
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The TCP address, and the other settings.
pub(super) fn read(
    fields: &Fields<'_>,
    problems: &mut Problems,
) -> Option<(Option<SocketAddr>, GrpcSettings)> {
    let address = setting(fields, "grpc", address, problems);
    let tls = tls_files(fields, ["grpc_tls_cert", "grpc_tls_key"], problems);
    for (key, needed) in [
        ("grpc_tls_client_ca", "grpc_tls_cert"),
        ("grpc_tls_client_name", "grpc_tls_client_ca"),
    ] {
        if let (Some((spot, node)), None) = (fields.take(key), fields.key(needed)) {
            let message = format!("this has no meaning without `{needed}`; give that too");
            problems.error(&node.place, &spot, message);
        }
    }
    let client_ca = fields.text("grpc_tls_client_ca", problems);
    let client_name = fields.text("grpc_tls_client_name", problems);
    let age = setting(fields, "grpc_max_connection_age", span_or_off, problems);
    let grace = setting(
        fields,
        "grpc_max_connection_age_grace",
        span_or_off,
        problems,
    );
    let (grpc, socket) = match address? {
        GrpcAddress::Off => (None, None),
        GrpcAddress::Tcp(address) => (Some(address), None),
        GrpcAddress::Unix(path) => (None, Some(path)),
    };
    let grace = grace?;
    let max_age = age?.map(|age| ConnectionAge {
        age,
        grace: grace.unwrap_or(FOR_EVER),
    });
    let settings = GrpcSettings {
        socket,
        tls,
        client_ca: client_ca.map(PathBuf::from),
        client_name: client_name.map(str::to_owned),
        max_age,
    };
    Some((grpc, settings))
}

/// Longer than a server runs.
const FOR_EVER: Duration = Duration::from_hours(24 * 365 * 100);

fn address(text: &str) -> Result<GrpcAddress, String> {
    if let Some(path) = text.strip_prefix("unix://") {
        if !path.starts_with('/') || path.len() < 2 {
            return Err(format!(
                "`{text}` is not the path of a socket; write for example `unix:///run/tidegate.sock`"
            ));
        }
        return Ok(GrpcAddress::Unix(path.into()));
    }
    Ok(address_or_off(text)?.map_or(GrpcAddress::Off, GrpcAddress::Tcp))
}

fn span_or_off(text: &str) -> Result<Option<Duration>, String> {
    if text == "off" {
        return Ok(None);
    }
    let span = span(text).map_err(|problem| format!("{problem}, or `off`"))?;
    Ok(Some(span.into()))
}
