//! The settings of a client: an address, a token, certificates. Each is checked before it is used.

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

/// The token of a server on this machine, and where that server is reached for certain.
pub(super) struct MadeToken {
    pub(super) token: String,
    pub(super) base: String,
}

/// The token that the server at this address made, if it runs on this machine on that data directory.
pub(super) fn made_token(server: &str, directory: &Path) -> Option<MadeToken> {
    let uri = ureq::http::Uri::try_from(server).ok()?;
    let is_plain = uri.scheme_str() == Some("http");
    let port = uri.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let address = RunningServer::find(directory)?.at(host, port)?;
    let token = RunningServer::token(directory)?;
    // With a certificate the name is safe to use; without one, only the address cannot be taken by another program.
    let base = if is_plain {
        format!("http://{address}{}", uri.path().trim_end_matches('/'))
    } else {
        server.to_owned()
    };
    Some(MadeToken { token, base })
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
