//! Checks that a request comes from an operator on this machine: not through a proxy that forwards other
//! clients' requests, and not from a web page in a browser on this machine.

use std::net::IpAddr;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, FORWARDED, HOST, ORIGIN, TRANSFER_ENCODING, VIA};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use tidegate::address;
use tidegate_tower::folded_byte;

use tidegate_listen::Peer;

/// Why a request does not come from this machine, or may not; `None` if it does.
pub(super) fn refusal(parts: &Parts) -> Option<&'static str> {
    let peer = parts.extensions.get::<Peer>();
    if !peer.is_some_and(|peer| address::canonical(peer.address.ip()).is_loopback()) {
        return Some("without a configured token, only this machine may administer the server");
    }
    if parts.headers.keys().any(is_of_a_proxy) {
        return Some(
            "the request came through a proxy, so it is not known to be from this machine",
        );
    }
    let hosts = parts
        .headers
        .get_all(HOST)
        .iter()
        .map(|host| host.to_str().unwrap_or_default());
    let named: Vec<&str> = hosts
        .chain(parts.uri.authority().map(http::uri::Authority::as_str))
        .collect();
    if named.is_empty() || !named.iter().all(|host| is_loopback_name(host)) {
        return Some("`Host` is not a name of this machine such as `localhost`");
    }
    let origins = parts.headers.get_all(ORIGIN);
    if !origins.iter().all(|origin| is_own(origin, &named)) {
        return Some("`Origin` is another site");
    }
    let mut sites = parts.headers.get_all("sec-fetch-site").iter();
    if sites.any(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site")) {
        return Some("`Sec-Fetch-Site` says that another site sent the request");
    }
    if has_body(parts) && !is_json(parts) {
        return Some("the body must be sent as `Content-Type: application/json`");
    }
    None
}

/// Headers in which proxies, tunnels and content delivery networks name the client, besides `X-Forwarded-*`.
const OF_PROXIES: [&str; 13] = [
    "cdn-loop",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-ray",
    "fastly-client-ip",
    "fly-client-ip",
    "true-client-ip",
    "x-azure-clientip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-real-ip",
];

/// Whether only proxies send a header, also in a spelling that some of them treat as the same.
fn is_of_a_proxy(name: &HeaderName) -> bool {
    let folded = name.as_str().bytes().map(folded_byte);
    let folded: String = folded.map(char::from).collect();
    *name == FORWARDED
        || *name == VIA
        || OF_PROXIES.contains(&folded.as_str())
        || folded.starts_with("x-forwarded-")
}

/// Whether a page belongs to this server, under one of these names.
fn is_own(origin: &HeaderValue, hosts: &[&str]) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let Some((scheme, site)) = origin.split_once("://") else {
        return false;
    };
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    // Either may omit the default port of the scheme.
    let bare = |host: &str| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    hosts.iter().all(|host| bare(host) == bare(site))
}

fn has_body(parts: &Parts) -> bool {
    let length = parts.headers.get(CONTENT_LENGTH);
    matches!(parts.method, Method::POST | Method::PUT | Method::PATCH)
        || parts.headers.contains_key(CONTENT_TYPE)
        || parts.headers.contains_key(TRANSFER_ENCODING)
        || length.is_some_and(|length| length.as_bytes() != b"0")
}

fn is_json(parts: &Parts) -> bool {
    let mut types = parts.headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (types.next(), types.next()) else {
        return false;
    };
    let media_type = value
        .to_str()
        .ok()
        .and_then(|value| value.split(';').next());
    media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("application/json"))
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') =>
        {
            name
        }
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|ip| address::canonical(ip).is_loopback())
}

#[cfg(test)]
mod tests {
    use super::super::tests::parts;
    use super::*;

    #[test]
    fn only_calls_from_this_machine_pass() {
        const HERE: &str = "127.0.0.1:5000";
        const JSON: (&str, &str) = ("content-type", "application/json");
        const HOST: (&str, &str) = ("host", "localhost:8080");
        #[rustfmt::skip]
        let table = [
            ("a local call",            HERE,                       vec![HOST, JSON],                                                   true),
            ("by address",              HERE,                       vec![("host", "127.0.0.1:8080"), JSON],                             true),
            ("over IPv6",               "[::1]:5000",               vec![("host", "[::1]:8080"), JSON],                                 true),
            ("a mapped address",        "[::ffff:127.0.0.1]:5000",  vec![("host", "[::1]"), JSON],                                      true),
            ("with a charset",          HERE,                       vec![HOST, ("content-type", "application/json; charset=utf-8")],    true),
            ("from the own page",       HERE,                       vec![HOST, JSON, ("origin", "http://localhost:8080")],              true),
            ("from the own page on 80", HERE,                       vec![("host", "localhost"), JSON, ("origin", "http://localhost")],  true),
            ("from the page on 443",    HERE,                       vec![("host", "localhost:443"), JSON, ("origin", "https://localhost")], true),
            ("typed by the user",       HERE,                       vec![HOST, JSON, ("sec-fetch-site", "none")],                       true),
            ("of the own page",         HERE,                       vec![HOST, JSON, ("sec-fetch-site", "same-origin")],                true),
            ("from elsewhere",          "203.0.113.7:5000",         vec![HOST, JSON],                                                   false),
            ("through a proxy",         HERE,                       vec![HOST, JSON, ("x-forwarded-for", "1.2.3.4")],                   false),
            ("with its host",           HERE,                       vec![HOST, JSON, ("x-forwarded-host", "localhost")],                false),
            ("through another proxy",   HERE,                       vec![HOST, JSON, ("forwarded", "for=1.2.3.4")],                     false),
            ("with an underscore",      HERE,                       vec![HOST, JSON, ("x_forwarded_for", "1.2.3.4")],                   false),
            ("with dots",               HERE,                       vec![HOST, JSON, ("x.forwarded~for", "1.2.3.4")],                   false),
            ("through a cache",         HERE,                       vec![HOST, JSON, ("via", "1.1 cache")],                             false),
            ("as nginx is set up",      HERE,                       vec![HOST, JSON, ("x-real-ip", "127.0.0.1")],                       false),
            ("through a tunnel",        HERE,                       vec![HOST, JSON, ("cf-connecting-ip", "1.2.3.4")],                  false),
            ("of a delivery network",   HERE,                       vec![HOST, JSON, ("true_client_ip", "1.2.3.4")],                    false),
            ("that marks loops",        HERE,                       vec![HOST, JSON, ("cdn-loop", "cloudflare")],                       false),
            ("with a foreign name",     HERE,                       vec![("host", "evil.example"), JSON],                               false),
            ("with a name like ours",   HERE,                       vec![("host", "localhost.evil.example"), JSON],                     false),
            ("with two names",          HERE,                       vec![HOST, ("host", "evil.example"), JSON],                         false),
            ("without a host",          HERE,                       vec![JSON],                                                         false),
            ("from another site",       HERE,                       vec![HOST, JSON, ("origin", "https://evil.example")],               false),
            ("from another port",       HERE,                       vec![HOST, JSON, ("origin", "http://localhost:3000")],              false),
            ("from a file",             HERE,                       vec![HOST, JSON, ("origin", "null")],                               false),
            ("from an extension",       HERE,                       vec![HOST, JSON, ("origin", "moz-extension://localhost:8080")],     false),
            ("sent by another site",    HERE,                       vec![HOST, JSON, ("sec-fetch-site", "cross-site")],                 false),
            ("a form of a page",        HERE,                       vec![HOST, ("content-type", "text/plain")],                         false),
            ("two types",               HERE,                       vec![HOST, JSON, ("content-type", "text/plain")],                   false),
            ("a body without a type",   HERE,                       vec![HOST, ("content-length", "2")],                                false),
        ];
        for (name, peer, headers, passes) in table {
            assert_eq!(refusal(&parts(peer, &headers)).is_none(), passes, "{name}");
        }
    }
}
