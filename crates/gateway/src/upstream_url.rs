//! The address of a server behind the gateway.

use std::fmt;

use http::uri::{Authority, Uri};

/// The protocol of a server behind the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamScheme {
    /// HTTP/1.1 in plain text.
    Http,
    /// TLS, with HTTP/2 if the server has it, else HTTP/1.1.
    Https,
    /// HTTP/2 in plain text.
    H2c,
}

/// The address of a server behind the gateway: `http://10.0.0.1:3000`, `https://…` or `h2c://…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// Its protocol.
    pub scheme: UpstreamScheme,
    /// Its name or address, as written, with the port if one was.
    pub authority: Authority,
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl UpstreamUrl {
    /// Parses an address. An error repeats nothing that may be a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str =
            "write it as `http://host:port`, `https://host:port` or `h2c://host:port`";
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("this is not a URL; {FORM}"));
        };
        let (scheme, default_port) = match scheme {
            "http" => (UpstreamScheme::Http, 80),
            "https" => (UpstreamScheme::Https, 443),
            "h2c" => (UpstreamScheme::H2c, 80),
            _ => {
                return Err(format!("the gateway does not support this scheme; {FORM}"));
            }
        };
        let uri: Uri = format!("http://{rest}")
            .parse()
            .map_err(|_| format!("this is not a URL; {FORM}"))?;
        let has_path = uri.path_and_query().is_some_and(|path| path != "/");
        let authority = uri
            .authority()
            .cloned()
            .filter(|authority| !authority.host().is_empty());
        let Some(authority) = authority else {
            return Err(format!("the URL has no host; {FORM}"));
        };
        if authority.as_str().contains('@') {
            return Err("a user and a password are not supported; leave them out".to_owned());
        }
        if has_path || rest.contains('#') {
            return Err(
                "a path is not supported, because paths are forwarded unchanged; leave out everything after the host".to_owned(),
            );
        }
        let has_port = authority
            .as_str()
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.contains(']'));
        let port = match authority.port_u16() {
            Some(0) => None,
            None if has_port => None,
            port => Some(port.unwrap_or(default_port)),
        };
        let Some(port) = port else {
            return Err("invalid port; ports are 1 to 65535".to_owned());
        };
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        Ok(Self {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
            authority,
        })
    }

    fn scheme_name(&self) -> &'static str {
        match self.scheme {
            UpstreamScheme::Http => "http",
            UpstreamScheme::Https => "https",
            UpstreamScheme::H2c => "h2c",
        }
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme_name(), self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_their_ports() {
        for (text, host, port) in [
            ("http://127.0.0.1:3000", "127.0.0.1", 3000),
            ("http://api", "api", 80),
            ("https://Api.example.com/", "api.example.com", 443),
            ("h2c://[::1]:50051", "::1", 50051),
            ("https://[2001:db8::1]", "2001:db8::1", 443),
        ] {
            let url = UpstreamUrl::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
    }

    #[test]
    fn an_error_about_an_address_does_not_repeat_its_password() {
        for text in [
            "127.0.0.1:3000",
            "ftp://s3cret",
            "http://",
            "http://u:s3cret@h",
            "http://h/s3cret",
            "http://h?s3cret",
            "http://h#s3cret",
            "http://h:99999",
            "http://h:0",
            "http://h:",
            "http://a b",
        ] {
            let problem = UpstreamUrl::parse(text).unwrap_err();
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }
}
