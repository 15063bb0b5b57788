//! Forwarding headers: clients cannot choose their address, and the next server sees the same client.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate::address::{ForwardedHeader, TrustedProxies, forwarded_parameter, parse_network};
use tidegate_gateway::fuzzing::forwarded;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What a client may write to the left of what proxies add, with what they separate it by.
const FORGED: [(&str, &str); 4] = [
    ("6.6.6.6, ", "for=6.6.6.6, "),
    (", ", "for=\"6.6.6.6, "),
    ("10.6.6.6, \", ", "for=\"[::1], for=\", "),
    ("unknown, ", "for=_x;by=\"\\\", "),
];

/// The lines of an input: the first byte chooses the setting, then values of `X-Forwarded-For` until an empty line,
/// then those of `Forwarded`.
pub fn check(input: &[u8]) {
    let Some((choice, lines)) = input.split_first() else {
        return;
    };
    let header = match choice % 3 {
        0 => ForwardedHeader::Both,
        1 => ForwardedHeader::XForwardedFor,
        _ => ForwardedHeader::Forwarded,
    };
    let mut lines = lines.split(|byte| *byte == b'\n');
    let x_forwarded_for: Vec<&[u8]> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let forwarded_values: Vec<&[u8]> = lines.collect();
    for value in &forwarded_values {
        let found = forwarded_parameter(value, "host").map(<[u8]>::len);
        assert!(found.is_none_or(|length| length < value.len()));
    }
    let Some(headers) = headers(&x_forwarded_for, &forwarded_values) else {
        return;
    };
    let proxies = trusted(&["10.0.0.0/8", "::1"]);
    let (trusted_peer, stranger) = (address("10.0.0.1"), address("203.0.113.7"));
    assert_eq!(client(&headers, stranger, &proxies, header), Some(stranger));

    let found = client(&headers, trusted_peer, &proxies, header);
    cannot_be_forged(&headers, found, &proxies, header);
    let Some(found) = found else {
        return;
    };
    let sent = forwarded(headers, trusted_peer, &proxies, header);
    let gateway = address("10.0.0.2");
    assert_eq!(
        client(&sent, gateway, &proxies, header),
        Some(found),
        "the next server sees {sent:?}"
    );
}

/// What is written to the left of the client that was found changes nothing.
fn cannot_be_forged(
    headers: &HeaderMap,
    found: Option<IpAddr>,
    proxies: &TrustedProxies,
    header: ForwardedHeader,
) {
    // If all addresses are trusted, the leftmost is the client: there a proxy could be forged by a proxy only.
    if found.is_none_or(|found| proxies.is_trusted(found)) {
        return;
    }
    for (by_x, by_forwarded) in FORGED {
        let mut forged = headers.clone();
        for (name, prefix) in [(&X_FORWARDED_FOR, by_x), (&FORWARDED, by_forwarded)] {
            let values: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
            // An empty list would become a list of the client.
            if values
                .iter()
                .all(|value| value.as_bytes().trim_ascii().is_empty())
            {
                continue;
            }
            forged.remove(name);
            for (index, value) in values.into_iter().enumerate() {
                let prefix = if index == 0 { prefix } else { "" };
                let value = [prefix.as_bytes(), value.as_bytes()].concat();
                if let Ok(value) = HeaderValue::from_bytes(&value) {
                    forged.append(name.clone(), value);
                }
            }
        }
        let peer = address("10.0.0.1");
        assert_eq!(
            client(&forged, peer, proxies, header),
            found,
            "a client has written `{by_x}` and `{by_forwarded}`"
        );
    }
}

fn headers(x_forwarded_for: &[&[u8]], forwarded: &[&[u8]]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, values) in [(&X_FORWARDED_FOR, x_forwarded_for), (&FORWARDED, forwarded)] {
        for value in values {
            headers.append(name.clone(), HeaderValue::from_bytes(value).ok()?);
        }
    }
    Some(headers)
}

fn client(
    headers: &HeaderMap,
    peer: IpAddr,
    proxies: &TrustedProxies,
    header: ForwardedHeader,
) -> Option<IpAddr> {
    let values = |name| headers.get_all(name).iter().collect();
    proxies.client_by::<HeaderValue>(header, peer, values).ok()
}

fn trusted(networks: &[&str]) -> TrustedProxies {
    let networks = networks.iter().filter_map(|text| parse_network(text).ok());
    networks.collect()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or(IpAddr::from([0, 0, 0, 0]))
}
