//! Which management server is followed, as whom, and how.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::uri::Authority;
use http::{HeaderName, HeaderValue};

use crate::pause::RetryTimes;

/// How a management server is reached, and what it is asked for.
#[derive(Debug, Clone)]
pub struct XdsSettings {
    /// The server.
    pub server: ServerAddress,
    /// The type of the resources that are followed.
    pub type_url: &'static str,
    /// The id of this node.
    pub node: String,
    /// What the server gets to know about this node besides.
    pub metadata: Vec<(String, String)>,
    /// Headers of each stream.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// TLS, if it is used.
    pub tls: Option<XdsTls>,
    /// The pauses between attempts.
    pub retry: RetryTimes,
    /// The largest message that is read, in bytes.
    pub max_message: usize,
}

/// TLS with a management server. The files are read for each connection, so that they can be renewed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XdsTls {
    /// The certificate of this client, with its key, as PEM files.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Authorities that are trusted in addition to the public ones, as a PEM file.
    pub authorities: Option<PathBuf>,
    /// The name that the server's certificate must have, if not the host of its address.
    pub server_name: Option<String>,
}

/// The address of a management server: a host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress(Authority);

/// The port of an address without one.
const DEFAULT_PORT: u16 = 443;

impl ServerAddress {
    /// The host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        let host = self.0.host();
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        inner.unwrap_or(host)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(DEFAULT_PORT)
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.0
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    /// Also with the scheme that clients of gRPC in Go use for the resolver of names.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = text
            .strip_prefix("dns:///")
            .or_else(|| text.strip_prefix("passthrough:///"))
            .unwrap_or(text);
        let authority: Option<Authority> = address.parse().ok();
        let has_port = |authority: &Authority| {
            authority.port_u16().is_some_and(|port| port > 0)
                || !authority.as_str()[authority.host().len()..].starts_with(':')
        };
        authority
            .filter(|authority| !authority.host().is_empty() && !address.contains('@'))
            .filter(has_port)
            .map(Self)
            .ok_or_else(|| {
                format!("`{text}` is not the address of a management server; write a host and a port, such as `envoy-gateway:18001`")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("envoy-gateway:18001",         Some(("envoy-gateway", 18_001))),
            ("localhost",                   Some(("localhost", 443))),
            ("10.0.0.1:1",                  Some(("10.0.0.1", 1))),
            ("[::1]:18000",                 Some(("::1", 18_000))),
            ("dns:///envoy-gateway:18001",  Some(("envoy-gateway", 18_001))),
            ("",                            None),
            (":18000",                      None),
            ("host:",                       None),
            ("host:0",                      None),
            ("host:70000",                  None),
            ("user@host:1",                 None),
            ("http://host:1",               None),
            ("host:1/path",                 None),
        ];
        for (text, expected) in table {
            let parsed: Result<ServerAddress, _> = text.parse();
            let found = parsed
                .as_ref()
                .ok()
                .map(|address| (address.host(), address.port()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
