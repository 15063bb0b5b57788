//! The URL of an HTTP server that this process calls.

use std::fmt;

use http::Uri;
use http::uri::{Authority, PathAndQuery};

/// The URL of an HTTP server, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    /// Whether TLS is used.
    pub is_tls: bool,
    /// The host as written, with the port if one was.
    pub authority: Authority,
    /// The host, in lower case and without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path and the query.
    pub path: PathAndQuery,
}

impl HttpUrl {
    /// Reads a URL. `plain_port` is the port of one without TLS that names none. An error repeats nothing that may be
    /// a password.
    pub fn parse(text: &str, plain_port: u16) -> Result<Self, &'static str> {
        let uri: Uri = text.parse().map_err(|_| "this is not a URL")?;
        let parts = uri.into_parts();
        let is_tls = match parts.scheme.as_ref().map(http::uri::Scheme::as_str) {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("this is not a URL of http or https"),
        };
        let authority = parts.authority.filter(|found| !found.host().is_empty());
        let authority = authority.ok_or("this URL has no host")?;
        if authority.as_str().contains('@') {
            return Err("a user and a password are not supported; leave them out");
        }
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            None if !has_port => Some(if is_tls { 443 } else { plain_port }),
            port => port.filter(|port| *port > 0),
        };
        let host = authority.host().trim_matches(['[', ']']);
        let path = parts.path_and_query;
        Ok(Self {
            is_tls,
            host: host.to_ascii_lowercase(),
            port: port.ok_or("this URL has no valid port")?,
            authority,
            path: path.unwrap_or_else(|| PathAndQuery::from_static("/")),
        })
    }

    /// The full URL. The query may hold a secret, so this is not for logs.
    pub fn to_full(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority, self.path)
    }

    /// Whether both have the same scheme, host and port.
    pub fn is_same_server(&self, other: &Self) -> bool {
        (self.is_tls, &self.host, self.port) == (other.is_tls, &other.host, other.port)
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

/// Without the query.
impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}{}",
            self.scheme(),
            self.authority,
            self.path.path()
        )
    }
}
