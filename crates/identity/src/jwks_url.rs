//! The address of a JSON Web Key Set: `https`, or `http` on this machine.

use std::net::IpAddr;

use tidegate_listen::HttpUrl;

/// The accepted form, for messages.
const FORM: &str = "write an `https://` URL, such as `https://issuer.example.com/.well-known/jwks.json`; `http://` is only for this machine (127.0.0.1, [::1], localhost)";

/// Reads where a JSON Web Key Set is fetched from. An error repeats nothing that may be a password.
pub fn parse_jwks_url(text: &str) -> Result<HttpUrl, String> {
    let url = HttpUrl::parse(text, 80).map_err(|error| format!("{error}; {FORM}"))?;
    if !url.is_tls && !is_this_machine(&url.host) {
        return Err(format!(
            "keys fetched without TLS can be replaced in transit; {FORM}"
        ));
    }
    Ok(url)
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
            let url = parse_jwks_url(text);
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
