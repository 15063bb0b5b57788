//! Describes the client to the next server: `X-Forwarded-For`, `-Proto`, `-Host` and `Forwarded`.
//!
//! Incoming values are kept only from a trusted proxy; all others are removed.

use std::net::IpAddr;

use http::header::{FORWARDED, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate::address::{TrustedProxies, forwarded_elements, push_address};
use tidegate_tower::{ForwardedHeader, client_address, folded_byte};

static FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The usual length of an added list element.
const USUAL_LENGTH: usize = 64;

/// How the client of a request is determined and described.
pub(crate) struct Forwarding<'g> {
    pub(crate) trusted_proxies: &'g TrustedProxies,
    /// Which lists are read and written.
    pub(crate) header: ForwardedHeader,
    /// Whether clients connect with TLS.
    pub(crate) is_tls: bool,
}

/// The headers that describe the client. Kept out of the `HeaderMap`: inserting them costs more than writing
/// the bytes.
pub(crate) struct ForwardedHeaders {
    chain: Chain,
    header: ForwardedHeader,
    /// `None` if a trusted proxy has set it.
    proto: Option<&'static str>,
    host: Option<HeaderValue>,
}

impl ForwardedHeaders {
    /// Builds the headers while the request still has its `Host`, and removes those of untrusted peers.
    pub(crate) fn new(headers: &mut HeaderMap, peer: IpAddr, forwarding: &Forwarding<'_>) -> Self {
        let peer = peer.to_canonical();
        let is_trusted = forwarding.trusted_proxies.is_trusted(peer);
        let mut chain = Chain::default();
        if is_trusted {
            if let Some(name) = forwarding.header.removed() {
                headers.remove(name);
            }
            chain = Chain::before(headers, peer, forwarding);
            headers.remove(&FOR);
            headers.remove(&FORWARDED);
        } else {
            strip(headers);
        }
        let proto = if forwarding.is_tls { "https" } else { "http" };
        let host = headers.get(HOST);
        chain.add(peer, host.and_then(|host| host.to_str().ok()), proto);
        let is_set = |name: &HeaderName| is_trusted && headers.contains_key(name);
        Self {
            chain,
            header: forwarding.header,
            proto: Some(proto).filter(|_| !is_set(&PROTO)),
            host: host.filter(|_| !is_set(&X_HOST)).cloned(),
        }
    }

    /// The names and values.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let chain = &self.chain;
        let x_forwarded_for =
            (self.header != ForwardedHeader::Forwarded).then_some(chain.x_forwarded_for.as_bytes());
        let forwarded =
            (self.header != ForwardedHeader::XForwardedFor).then_some(chain.forwarded.as_bytes());
        let all = [
            (&FOR, x_forwarded_for),
            (&FORWARDED, forwarded),
            (&PROTO, self.proto.map(str::as_bytes)),
            (&X_HOST, self.host.as_ref().map(HeaderValue::as_bytes)),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
    }

    /// Inserts them into a `HeaderMap`.
    pub(crate) fn put_into(&self, headers: &mut HeaderMap) {
        for (name, value) in self.headers() {
            // Built from header values and addresses, so it is valid.
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.insert(name, value);
            }
        }
    }
}

/// Removes the headers that describe the client.
fn strip(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_about_client(name))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
}

/// Whether a header describes the client, also in a spelling that some servers treat as the same.
pub(crate) fn is_about_client(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    let begins = |prefix: &[u8]| {
        let letters = name.iter().map(|byte| folded_byte(*byte));
        name.len() >= prefix.len() && letters.zip(prefix).all(|(letter, other)| letter == *other)
    };
    match name.first() {
        Some(b'x') => begins(b"x-forwarded-") || (name.len() == 9 && begins(b"x-real-ip")),
        Some(b'f') => name == b"forwarded",
        _ => false,
    }
}

/// The two lists of proxies that a request has passed.
#[derive(Default)]
struct Chain {
    x_forwarded_for: String,
    forwarded: String,
}

impl Chain {
    /// The lists of a trusted peer. If it sends only one of them, the other gets the client that the first one
    /// names, so that they agree.
    fn before(headers: &HeaderMap, peer: IpAddr, forwarding: &Forwarding<'_>) -> Self {
        let mut chain = Self {
            x_forwarded_for: joined(headers, &FOR),
            forwarded: joined_elements(headers),
        };
        if chain.x_forwarded_for.is_empty() != chain.forwarded.is_empty() {
            let proxies = forwarding.trusted_proxies;
            let client = client_address(headers, peer, proxies, forwarding.header);
            // There is one list only, which cannot contradict itself.
            let client = client.unwrap_or(peer);
            if client != peer && chain.forwarded.is_empty() {
                chain.push_node(client);
            } else if client != peer {
                chain.x_forwarded_for = client.to_string();
            }
        }
        chain
    }

    /// Adds the peer of this connection.
    fn add(&mut self, peer: IpAddr, host: Option<&str>, proto: &str) {
        for list in [&mut self.x_forwarded_for, &mut self.forwarded] {
            if !list.is_empty() {
                list.push_str(", ");
            }
            list.reserve(USUAL_LENGTH);
        }
        push_address(&mut self.x_forwarded_for, peer);
        self.push_node(peer);
        if let Some(host) = host {
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            let quote = if host.bytes().all(is_token) { "" } else { "\"" };
            for part in [";host=", quote, host, quote] {
                self.forwarded.push_str(part);
            }
        }
        self.forwarded.push_str(";proto=");
        self.forwarded.push_str(proto);
    }

    /// Adds an address to the second list, as RFC 7239 writes it.
    fn push_node(&mut self, ip: IpAddr) {
        let (before, after) = match ip {
            IpAddr::V4(_) => ("for=", ""),
            IpAddr::V6(_) => ("for=\"[", "]\""),
        };
        self.forwarded.push_str(before);
        push_address(&mut self.forwarded, ip);
        self.forwarded.push_str(after);
    }
}

/// The fields of a list as one. Empty fields are no list, as in the code that determines the client.
fn joined(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).iter();
    let texts: Vec<_> = values
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    if texts.iter().all(|text| text.trim_ascii().is_empty()) {
        return String::new();
    }
    texts.join(", ")
}

/// The elements of all `Forwarded` fields as one list, without malformed elements and those to the left of them: in one
/// list, a quote that a field leaves open would pair with one of another field.
fn joined_elements(headers: &HeaderMap) -> String {
    let fields: Vec<&[u8]> = headers
        .get_all(FORWARDED)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if fields.iter().all(|field| field.trim_ascii().is_empty()) {
        return String::new();
    }
    let mut texts: Vec<_> = forwarded_elements(fields)
        .map(String::from_utf8_lossy)
        .collect();
    texts.reverse();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use tidegate::address::parse_network;

    use super::*;

    fn written(peer: &str, sent: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        written_in(ForwardedHeader::Both, peer, sent)
    }

    fn written_in(
        header: ForwardedHeader,
        peer: &str,
        sent: &[(&'static str, &'static str)],
    ) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let proxies: TrustedProxies = [parse_network("10.0.0.0/8").unwrap()].into_iter().collect();
        let forwarding = Forwarding {
            trusted_proxies: &proxies,
            header,
            is_tls: false,
        };
        let forwarded = ForwardedHeaders::new(&mut headers, peer.parse().unwrap(), &forwarding);
        forwarded.put_into(&mut headers);
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        let mut all: Vec<_> = headers.iter().map(text).collect();
        all.sort();
        all
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn what_a_client_says_about_itself_is_replaced() {
        let sent = [
            ("host", "api.example.com"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-for", "5.6.7.8"),
            ("x_forwarded_for", "1.2.3.4"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-prefix", "/admin"),
            ("forwarded", "for=1.2.3.4"),
            ("x-real-ip", "1.2.3.4"),
        ];
        let expected = pairs(&[
            (
                "forwarded",
                "for=203.0.113.7;host=api.example.com;proto=http",
            ),
            ("host", "api.example.com"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-host", "api.example.com"),
            ("x-forwarded-proto", "http"),
        ]);
        assert_eq!(written("203.0.113.7", &sent), expected);
        assert_eq!(written("::ffff:203.0.113.7", &sent), expected);
    }

    #[test]
    fn what_a_trusted_proxy_says_is_added_to() {
        let sent = [
            ("forwarded", "for=203.0.113.7;proto=https"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-host", "shop.example.com"),
            ("x-forwarded-proto", "https"),
        ];
        let expected = pairs(&[
            (
                "forwarded",
                "for=203.0.113.7;proto=https, for=10.0.0.1;proto=http",
            ),
            ("x-forwarded-for", "203.0.113.7, 10.0.0.2, 10.0.0.1"),
            ("x-forwarded-host", "shop.example.com"),
            ("x-forwarded-proto", "https"),
        ]);
        assert_eq!(written("10.0.0.1", &sent), expected);
    }

    #[test]
    fn the_two_lists_name_the_same_client_when_a_proxy_writes_one() {
        let by_x = written("10.0.0.1", &[("x-forwarded-for", "2001:db8::1, 10.0.0.2")]);
        assert!(by_x.contains(&(
            "forwarded".to_owned(),
            "for=\"[2001:db8::1]\", for=10.0.0.1;proto=http".to_owned()
        )));
        let by_forwarded = written("10.0.0.1", &[("forwarded", "for=203.0.113.7")]);
        assert!(by_forwarded.contains(&(
            "x-forwarded-for".to_owned(),
            "203.0.113.7, 10.0.0.1".to_owned()
        )));
    }

    #[test]
    fn empty_fields_are_a_missing_list() {
        let sent = [
            ("forwarded", ""),
            ("forwarded", " "),
            ("x-forwarded-for", "203.0.113.7"),
        ];
        let expected = pairs(&[
            ("forwarded", "for=203.0.113.7, for=10.0.0.1;proto=http"),
            ("x-forwarded-for", "203.0.113.7, 10.0.0.1"),
            ("x-forwarded-proto", "http"),
        ]);
        assert_eq!(written("10.0.0.1", &sent), expected);
    }

    #[test]
    fn a_quote_that_a_field_leaves_open_does_not_pair_with_another_field() {
        const OPEN: &str = "by=\"a\";for=1.2.3.4;b=\"x";
        for (sent, expected) in [
            // The next server would read one element, for 1.2.3.4.
            (&[OPEN, "", "c=\""][..], "for=10.0.0.1;proto=http"),
            (&[OPEN, "c"], "c, for=10.0.0.1;proto=http"),
            (
                &[OPEN, "for=10.0.0.3"],
                "for=10.0.0.3, for=10.0.0.1;proto=http",
            ),
            // A server that pairs quotes from the left would read one element.
            (
                &["for=\"1.2.3.4, for=203.0.113.7"],
                "for=203.0.113.7, for=10.0.0.1;proto=http",
            ),
            (&["for=1.2.3.4;b=\\\""], "for=10.0.0.1;proto=http"),
            (
                &["for=1.2.3.4;b=\"x, y\" , for=203.0.113.7", "for=10.0.0.3"],
                "for=1.2.3.4;b=\"x, y\", for=203.0.113.7, for=10.0.0.3, for=10.0.0.1;proto=http",
            ),
        ] {
            let fields: Vec<_> = sent.iter().map(|value| ("forwarded", *value)).collect();
            let all = written_in(ForwardedHeader::Forwarded, "10.0.0.1", &fields);
            let found = all.iter().find(|(name, _)| name == "forwarded");
            assert_eq!(
                found.map(|(_, value)| value.as_str()),
                Some(expected),
                "{sent:?}"
            );
        }
    }

    #[test]
    fn the_header_that_proxies_do_not_write_is_neither_read_nor_sent() {
        let sent = [
            ("forwarded", "for=198.51.100.1"),
            ("x-forwarded-for", "203.0.113.7"),
        ];
        let proto = ("x-forwarded-proto", "http");
        assert_eq!(
            written_in(ForwardedHeader::XForwardedFor, "10.0.0.1", &sent),
            pairs(&[("x-forwarded-for", "203.0.113.7, 10.0.0.1"), proto])
        );
        let element = "for=198.51.100.1, for=10.0.0.1;proto=http";
        assert_eq!(
            written_in(ForwardedHeader::Forwarded, "10.0.0.1", &sent),
            pairs(&[("forwarded", element), proto])
        );
        assert_eq!(
            written_in(ForwardedHeader::XForwardedFor, "203.0.113.9", &sent),
            pairs(&[("x-forwarded-for", "203.0.113.9"), proto])
        );
    }

    #[test]
    fn ports_and_ipv6_are_quoted() {
        let all = written("2001:db8::7", &[("host", "[::1]:8000")]);
        assert!(all.contains(&(
            "forwarded".to_owned(),
            "for=\"[2001:db8::7]\";host=\"[::1]:8000\";proto=http".to_owned()
        )));
    }
}
