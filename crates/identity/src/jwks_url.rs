//! The address of a JSON Web Key Set: `https`, or `http` on this machine.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use http::uri::{Authority, PathAndQuery};

/// The accepted form, for messages.
const FORM: &str = "write an `https://` URL, such as `https://issuer.example.com/.well-known/jwks.json`; `http://` is only for this machine (127.0.0.1, [::1], localhost)";

/// Where a JSON Web Key Set is fetched from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwksUrl {
    /// Whether TLS is used. Without it, the host is this machine.
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

impl JwksUrl {
    /// The full URL. The query may hold a secret, so this is not for logs.
    pub fn to_full(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.path)
    }

    /// Whether both have the same scheme, host and port.
    pub fn is_same_server(&self, other: &Self) -> bool {
        (self.is_tls, &self.host, self.port) == (other.is_tls, &other.host, other.port)
    }
}

/// Without the query.
impl fmt::Display for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path.path())
    }
}

impl std::str::FromStr for JwksUrl {
    type Err = String;

    /// Parses an address. An error repeats nothing that may be a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text
            .parse()
            .map_err(|_| format!("this is not a URL; {FORM}"))?;
        let parts = uri.into_parts();
        let is_tls = match parts.scheme.as_ref().map(http::uri::Scheme::as_str) {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(format!("this is not a URL of http or https; {FORM}")),
        };
        let authority = parts
            .authority
            .filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| format!("this URL has no host; {FORM}"))?;
        if authority.as_str().contains('@') {
            return Err(format!(
                "a user and a password are not supported; leave them out; {FORM}"
            ));
        }
        let host = authority
            .host()
            .trim_matches(['[', ']'])
            .to_ascii_lowercase();
        if !is_tls && !is_this_machine(&host) {
            return Err(format!(
                "keys fetched without TLS can be replaced in transit; {FORM}"
            ));
        }
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(0) => None,
            None if has_port => None,
            port => Some(port.unwrap_or(if is_tls { 443 } else { 80 })),
        };
        Ok(Self {
            is_tls,
            host,
            port: port.ok_or_else(|| format!("this URL has no valid port; {FORM}"))?,
            authority,
            path: parts
                .path_and_query
                .unwrap_or_else(|| PathAndQuery::from_static("/")),
        })
    }
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_anywhere_and_http_only_on_this_machine() {
        #[rustfmt::skip]
        let table = [
            ("https://a.example/jwks.json",     Some("a.example:443 /jwks.json")),
            ("https://A.example:8443?x=1",      Some("a.example:8443 /?x=1")),
            ("http://127.0.0.1:80/k",           Some("127.0.0.1:80 /k")),
            ("http://127.8.9.1/k",              Some("127.8.9.1:80 /k")),
            ("http://[::1]:9/k",                Some("::1:9 /k")),
            ("http://localhost:9/k",            Some("localhost:9 /k")),
            ("http://a.example/jwks.json",      None),
            ("http://localhost.example/k",      None),
            ("http://127.0.0.1.example/k",      None),
            ("http://10.0.0.1/k",               None),
            ("https://user:secret@a.example/k", None),
            ("https:///k",                      None),
            ("https://a.example:0/k",           None),
            ("ftp://a.example/k",               None),
            ("/k",                              None),
            ("a.example",                       None),
            ("",                                None),
        ];
        for (text, expected) in table {
            let url = text.parse::<JwksUrl>();
            let found = url
                .as_ref()
                .map(|url| format!("{}:{} {}", url.host, url.port, url.path));
            if let Some(expected) = expected {
                assert_eq!(found.as_deref(), Ok(expected), "{text}");
            } else {
                let error = url.unwrap_err();
                assert!(error.contains("`https://` URL"), "{text}: {error}");
                assert!(!error.contains("secret"), "{error}");
            }
        }
    }
}
