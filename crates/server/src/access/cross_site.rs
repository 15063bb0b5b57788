//! Refuses checks that a page of another site sends through a browser. Without tokens, a browser that can reach
//! the server is as good a caller as any program, and a page needs no permission to send a simple POST.

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderName, HeaderValue};

use crate::problem::HttpProblem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses a request of another site. Programs send neither header, so this is two lookups for them.
pub(super) fn refuse(parts: &Parts) -> Result<(), HttpProblem> {
    let (headers, sites) = (&parts.headers, parts.headers.get_all(SEC_FETCH_SITE));
    let why = if headers.contains_key(ORIGIN) && !headers.get_all(ORIGIN).iter().all(own(parts)) {
        "`Origin` is another site than `Host`"
    } else if sites.iter().any(is_cross_site) {
        "`Sec-Fetch-Site` says that another site sent the request"
    } else {
        return Ok(());
    };
    let detail = format!(
        "{why}, and without a token any web page could use up the limits of others; configure a token (TIDEGATE_TOKEN, or `tokens` in the configuration), or call from your server"
    );
    Err(HttpProblem::forbidden_for("cross_site", detail))
}

fn is_cross_site(site: &HeaderValue) -> bool {
    site.as_bytes().eq_ignore_ascii_case(b"cross-site")
}

/// Whether an origin has the host name that the request is for. Ports may differ: a page and the server that it
/// calls are often on two ports of one machine.
fn own(parts: &Parts) -> impl Fn(&HeaderValue) -> bool {
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let asked = host.or(authority).map(name);
    move |origin| {
        let origin = origin.to_str().unwrap_or_default();
        let site = origin.split_once("://").map(|(_, site)| name(site));
        site.is_some_and(|site| asked.is_some_and(|asked| asked.eq_ignore_ascii_case(site)))
    }
}

/// The name in `name[:port]` or `[address][:port]`.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parts;
    use super::*;

    #[test]
    fn a_page_of_another_host_name_is_cross_site() {
        const HOST: (&str, &str) = ("host", "localhost:8080");
        let origin = |origin| ("origin", origin);
        let fetched = |site| ("sec-fetch-site", site);
        #[rustfmt::skip]
        let table = [
            (vec![HOST],                                                            true),
            (vec![HOST, origin("http://localhost:8080")],                           true),
            (vec![HOST, origin("https://LOCALHOST:3000")],                          true),
            (vec![HOST, origin("http://localhost")],                                true),
            (vec![("host", "[::1]:8080"), origin("http://[::1]:3000")],             true),
            (vec![("host", "[::1]"), origin("http://[::1]")],                       true),
            (vec![HOST, fetched("same-origin")],                                    true),
            (vec![HOST, fetched("same-site"), origin("http://localhost:3000")],     true),
            (vec![HOST, fetched("none")],                                           true),
            (vec![HOST, fetched("cross-site")],                                     false),
            (vec![HOST, fetched("Cross-Site"), origin("http://localhost")],         false),
            (vec![HOST, fetched("none"), fetched("cross-site")],                    false),
            (vec![HOST, origin("http://evil.example")],                             false),
            (vec![HOST, origin("http://localhost.evil.example:8080")],              false),
            (vec![HOST, origin("http://127.0.0.1:8080")],                           false),
            (vec![("host", "[::1]:8080"), origin("http://[::2]:8080")],             false),
            (vec![HOST, origin("null")],                                            false),
            (vec![HOST, origin("")],                                                false),
            (vec![HOST, origin("localhost")],                                       false),
            (vec![HOST, origin("http://localhost"), origin("http://evil.example")], false),
            (vec![origin("http://localhost")],                                      false),
        ];
        for (headers, passes) in table {
            let parts = parts("127.0.0.1:5000", &headers);
            assert_eq!(refuse(&parts).is_ok(), passes, "{headers:?}");
        }
        // HTTP/2 has the host in its target.
        for (site, passes) in [
            ("http://localhost:3000", true),
            ("http://evil.example", false),
        ] {
            let mut parts = parts("127.0.0.1:5000", &[origin(site)]);
            parts.uri = http::Uri::from_static("http://localhost:8080/v1/check");
            assert_eq!(refuse(&parts).is_ok(), passes, "{site}");
        }
    }
}
