//! The settings of a client: an address, a token, certificates. Each is checked before it is used.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use tidegate_server::data_dir::RunningServer;
use ureq::http::HeaderValue;
use ureq::tls::{Certificate, PemItem, RootCerts};

/// The address without a slash at the end; `http` if it names no scheme.
pub(super) fn base_url(server: &str) -> anyhow::Result<String> {
    let (scheme, rest) = server.split_once("://").unwrap_or(("http", server));
    let rest = rest.trim_end_matches('/');
    if !matches!(scheme, "http" | "https") || rest.is_empty() || rest.contains(['?', '#']) {
        bail!(
            "`{server}` is not the address of a server; write for example `http://127.0.0.1:8080`"
        );
    }
    if rest.contains('@') {
        bail!(
            "the address of a server has no user in it; give a token with --token or TIDEGATE_TOKEN"
        );
    }
    Ok(format!("{scheme}://{rest}"))
}

pub(super) fn is_loopback(server: &str) -> bool {
    let host = ureq::http::Uri::try_from(server)
        .ok()
        .and_then(|uri| uri.host().map(str::to_owned))
        .unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    host == "localhost" || address.is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// A server on this machine.
pub(super) struct LocalServer {
    /// Where it answers all calls.
    pub(super) api: String,
    /// Where services ask it.
    pub(super) checks: String,
    pub(super) has_admin: bool,
    /// The token that it made, if it did.
    pub(super) token: Option<String>,
}

/// The server at this address, if it runs on this machine on that data directory, and where it is reached for
/// certain.
pub(super) fn local_server(server: &str, directory: &Path) -> Option<LocalServer> {
    let uri = ureq::http::Uri::try_from(server).ok()?;
    let is_plain = uri.scheme_str() == Some("http");
    let port = uri.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
    let host = uri.host()?;
    let running = RunningServer::find(directory)?;
    let reached = running.at(host.trim_start_matches('[').trim_end_matches(']'), port)?;
    let path = uri.path().trim_end_matches('/');
    // With a certificate the name is safe to use; without one, only the address cannot be taken by another program.
    let base = |address: SocketAddr| {
        if is_plain {
            return format!("http://{address}{path}");
        }
        format!("https://{host}:{}{path}", address.port())
    };
    Some(LocalServer {
        api: base(reached.api),
        checks: base(reached.checks),
        has_admin: running.has_admin(),
        token: RunningServer::token(directory),
    })
}

/// Why there is no token for a server, if none was given and [`made_token`] found none, and what to use.
pub(super) fn why_no_token(server: &str, directory: &Path) -> String {
    let shown = directory.display();
    let why = if !is_loopback(server) {
        return "none was given; use --token or TIDEGATE_TOKEN".to_owned();
    } else if !directory.exists() {
        format!("`{shown}` not found")
    } else if RunningServer::find(directory).is_none() {
        format!("no server runs on `{shown}`")
    } else if RunningServer::token(directory).is_none() {
        return format!("`{shown}` has none; use --token or TIDEGATE_TOKEN");
    } else {
        format!("the server of `{shown}` has another address")
    };
    format!("{why}; use --data-dir, --token or TIDEGATE_TOKEN")
}

pub(super) fn bearer(token: &str) -> anyhow::Result<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
        anyhow!("the token has characters that cannot be sent; is a line end in it?")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

pub(super) fn roots_in(file: &Path) -> anyhow::Result<RootCerts> {
    let shown = file.display();
    let pem = std::fs::read(file).with_context(|| format!("cannot read `{shown}`"))?;
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        let item = item.with_context(|| format!("`{shown}` is not a PEM file"))?;
        if let PemItem::Certificate(certificate) = item {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        bail!("there is no certificate in `{shown}`; it must have `BEGIN CERTIFICATE` in it");
    }
    Ok(RootCerts::from(certificates))
}
