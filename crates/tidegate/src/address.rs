//! The client address of a request, and its counter key.
//!
//! IPv4-mapped IPv6 addresses are IPv4 addresses everywhere, so that no client has two. An address in a header counts
//! only if a trusted proxy wrote it.

use std::fmt::{self, Write as _};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Deref;

use ipnet::{IpNet, Ipv4Net};
use smallvec::SmallVec;

#[cfg(test)]
mod tests;

const X_FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED: &str = "forwarded";

/// The bits of an IPv4-mapped address that come before the IPv4 address.
const MAPPED_PREFIX: u8 = 96;

/// `ip`, as IPv4 if it is an IPv4-mapped IPv6 address.
pub fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The address that `text` is, and nothing more: no port, zone, prefix or space. [Canonical](canonical).
pub fn parse(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(canonical)
}

/// Adds the text of an address. Without the machinery of `write!` where it is IPv4, because that is done for
/// every request.
pub fn push_address(text: &mut String, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            let [first, others @ ..] = ip.octets();
            push_octet(text, first);
            for octet in others {
                text.push('.');
                push_octet(text, octet);
            }
        }
        // Writing to a String cannot fail.
        IpAddr::V6(ip) => drop(write!(text, "{ip}")),
    }
}

fn push_octet(text: &mut String, octet: u8) {
    let digit = |value: u8| char::from(b'0' + value % 10);
    if octet >= 100 {
        text.push(digit(octet / 100));
    }
    if octet >= 10 {
        text.push(digit(octet / 10));
    }
    text.push(digit(octet));
}

/// The network that `text` is, as an address or in CIDR form; IPv4-mapped ones as IPv4.
///
/// Bits after the prefix are ignored: `10.1.2.3/8` is `10.0.0.0/8`.
pub fn parse_network(text: &str) -> Result<IpNet, AddressError> {
    let network = match parse(text) {
        Some(ip) => Ok(IpNet::from(ip)),
        None => text.parse(),
    };
    network
        .map(canonical_network)
        .map_err(|_| AddressError::NotANetwork {
            text: crate::path::shortened(text),
        })
}

/// Why an address or a network was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is neither an address nor a network.
    #[error(
        "`{text}` is neither an address nor a network; write for example `203.0.113.7`, `10.0.0.0/8` or `2001:db8::/32`"
    )]
    NotANetwork {
        /// What was read, shortened when long.
        text: String,
    },
    /// Trusted proxies name two clients.
    #[error(
        "`X-Forwarded-For` and `Forwarded` name different clients; the proxy must write one of them and remove the other, and the setting `forwarded_header` can say which one"
    )]
    TwoClients,
}

/// The key that requests from `ip` count on: IPv4 addresses whole, IPv6 addresses by their first
/// `ipv6_prefix` bits, since one subscriber has a whole network of them. More than 128 bits are 128.
///
/// ```
/// use tidegate::address::key_of;
///
/// assert_eq!(&*key_of("203.0.113.7".parse()?, 64), "203.0.113.7");
/// assert_eq!(&*key_of("2001:db8::a:b".parse()?, 64), "2001:db8::/64");
/// assert_eq!(&*key_of("2001:db8::a:b".parse()?, 128), "2001:db8::a:b");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn key_of(ip: IpAddr, ipv6_prefix: u8) -> IpKey {
    IpKey(match canonical(ip) {
        IpAddr::V6(ip) if ipv6_prefix < 128 => {
            let mask = u128::MAX
                .checked_shl(u32::from(128 - ipv6_prefix))
                .unwrap_or(0);
            let network = Ipv6Addr::from_bits(ip.to_bits() & mask);
            format!("{network}/{ipv6_prefix}")
        }
        ip => ip.to_string(),
    })
}

/// The key of an address, made by [`key_of`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpKey(pub(crate) String);

impl Deref for IpKey {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

/// Proxies trusted to report the client's address. By default none.
///
/// A network of IPv6 addresses never holds IPv4 ones, not even `::/0`: those have to be named.
///
/// ```
/// use tidegate::address::{TrustedProxies, parse_network};
///
/// let trusted: TrustedProxies = ["10.0.0.0/8", "::1"]
///     .into_iter()
///     .map(parse_network)
///     .collect::<Result<_, _>>()?;
/// let client = trusted.client_address(
///     "10.0.0.1".parse()?,
///     ["6.6.6.6, 203.0.113.7, 10.0.0.2"],
///     [""; 0],
/// )?;
/// assert_eq!(client.to_string(), "203.0.113.7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
}

impl FromIterator<IpNet> for TrustedProxies {
    fn from_iter<T: IntoIterator<Item = IpNet>>(networks: T) -> Self {
        Self {
            networks: networks.into_iter().map(canonical_network).collect(),
        }
    }
}

/// In which header trusted proxies name the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// In either; if both are there, they must agree.
    #[default]
    Both,
    /// In `X-Forwarded-For`.
    XForwardedFor,
    /// In `Forwarded`.
    Forwarded,
}

impl ForwardedHeader {
    /// The header that is neither read nor passed on, in lower case.
    pub fn removed(self) -> Option<&'static str> {
        match self {
            Self::Both => None,
            Self::XForwardedFor => Some(FORWARDED),
            Self::Forwarded => Some(X_FORWARDED_FOR),
        }
    }
}

impl TrustedProxies {
    /// The same proxies, and `ip`.
    #[must_use]
    pub fn with(&self, ip: IpAddr) -> Self {
        let mut networks = self.networks.clone();
        networks.push(IpNet::from(canonical(ip)));
        Self { networks }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether `ip` is one of them.
    pub fn is_trusted(&self, ip: IpAddr) -> bool {
        let ip = canonical(ip);
        self.networks.iter().any(|network| network.contains(&ip))
    }

    /// The [canonical] address of the client of a request that came from `peer`, with the values of all its
    /// `X-Forwarded-For` and all its `Forwarded` fields, in order.
    ///
    /// Each proxy appends the address of its own peer. So the list of a trusted peer is read from the right, past
    /// trusted addresses, to the first that is not trusted: the client. The entries to the left of it are not trusted.
    /// If all are trusted, the client is the leftmost. An entry that is not an address (`unknown`, `_hidden`, nothing,
    /// an element with a quote left open) ends the list: the client is then the trusted address to the right of it, or
    /// the peer.
    ///
    /// A proxy writes one of the two headers and may pass on the other as the client sent it. When
    /// both are there and name different clients, neither can be believed:
    /// [`AddressError::TwoClients`]. A header with nothing in it is a missing one. A trusted proxy must
    /// write at least one of the two.
    pub fn client_address<'h, X, F>(
        &self,
        peer: IpAddr,
        x_forwarded_for: impl IntoIterator<Item = &'h X, IntoIter: DoubleEndedIterator>,
        forwarded: impl IntoIterator<Item = &'h F, IntoIter: DoubleEndedIterator>,
    ) -> Result<IpAddr, AddressError>
    where
        X: AsRef<[u8]> + ?Sized + 'h,
        F: AsRef<[u8]> + ?Sized + 'h,
    {
        let peer = canonical(peer);
        if !self.is_trusted(peer) {
            return Ok(peer);
        }
        let fields = written(x_forwarded_for.into_iter().rev().map(AsRef::as_ref));
        let entries = fields
            .iter()
            .flat_map(|field| field.rsplit(|byte| *byte == b','));
        let by_x = self.nearest_untrusted(peer, entries.map(parse_node));

        let fields = written(forwarded.into_iter().rev().map(AsRef::as_ref));
        let elements = fields.iter().flat_map(|field| rsplit_unquoted(field, b','));
        let by_forwarded = self.nearest_untrusted(peer, elements.map(parse_element));

        match (by_x, by_forwarded) {
            (Some(one), Some(other)) if one != other => Err(AddressError::TwoClients),
            (one, other) => Ok(one.or(other).unwrap_or(peer)),
        }
    }

    /// Like `client_address`, reading only the headers that `header` selects through `values`.
    pub fn client_by<'h, V>(
        &self,
        header: ForwardedHeader,
        peer: IpAddr,
        values: impl Fn(&'static str) -> Vec<&'h V>,
    ) -> Result<IpAddr, AddressError>
    where
        V: AsRef<[u8]> + ?Sized + 'h,
    {
        if !self.is_trusted(peer) {
            return Ok(canonical(peer));
        }
        let read = |name| match header.removed() {
            Some(removed) if removed == name => Vec::new(),
            _ => values(name),
        };
        self.client_address(peer, read(X_FORWARDED_FOR), read(FORWARDED))
    }

    /// The client that a list names, read from its right end; nothing if there is no list.
    fn nearest_untrusted(
        &self,
        peer: IpAddr,
        entries: impl Iterator<Item = Option<IpAddr>>,
    ) -> Option<IpAddr> {
        let mut client = None;
        for entry in entries {
            let Some(ip) = entry else {
                return client.or(Some(peer));
            };
            client = Some(ip);
            if !self.is_trusted(ip) {
                break;
            }
        }
        client
    }
}

/// The fields of a header, or none if there is nothing in any of them.
fn written<'h>(fields: impl Iterator<Item = &'h [u8]>) -> SmallVec<[&'h [u8]; 2]> {
    let mut fields: SmallVec<[&[u8]; 2]> = fields.collect();
    if fields.iter().all(|field| field.trim_ascii().is_empty()) {
        fields.clear();
    }
    fields
}

/// `network` without the bits after its prefix, as IPv4 if all of it is IPv4-mapped.
fn canonical_network(network: IpNet) -> IpNet {
    let network = network.trunc();
    let length = network.prefix_len().checked_sub(MAPPED_PREFIX);
    match (network, canonical(network.addr()), length) {
        (IpNet::V6(_), IpAddr::V4(ip), Some(length)) => {
            Ipv4Net::new(ip, length).map_or(network, IpNet::V4)
        }
        _ => network,
    }
}

/// The elements of the values of all `Forwarded` fields of a request, from the right, up to the first that is
/// malformed.
///
/// Joined by commas they are read as the same elements from either side, because every quote in them is closed
/// and nothing outside of quotes is escaped. Of the malformed element and what is to the left of it nothing can
/// be passed on: a quote that is open there pairs with any that follows.
///
/// ```
/// use tidegate::address::forwarded_elements;
///
/// let fields: [&[u8]; 2] = [b"for=6.6.6.6;by=\"a, for=203.0.113.7", b"for=10.0.0.2"];
/// let elements: Vec<&[u8]> = forwarded_elements(fields).collect();
/// assert_eq!(elements, [&b"for=10.0.0.2"[..], b"for=203.0.113.7"]);
/// ```
pub fn forwarded_elements<'f>(
    fields: impl IntoIterator<Item = &'f [u8], IntoIter: DoubleEndedIterator>,
) -> impl Iterator<Item = &'f [u8]> {
    let fields = fields.into_iter().rev();
    let elements = fields.flat_map(|field| rsplit_unquoted(field, b','));
    elements
        .map(<[u8]>::trim_ascii)
        .take_while(|element| is_well_formed(element))
}

/// The value of a parameter in the last element of a `Forwarded` field, which is what the nearest proxy
/// wrote; without its quotes. None if it is not there, or twice, or if the element is malformed.
///
/// ```
/// use tidegate::address::forwarded_parameter;
///
/// let field = b"for=6.6.6.6;host=a, for=203.0.113.7;host=\"b:8080\"";
/// assert_eq!(forwarded_parameter(field, "host"), Some(&b"b:8080"[..]));
/// ```
pub fn forwarded_parameter<'f>(field: &'f [u8], name: &str) -> Option<&'f [u8]> {
    let element = rsplit_unquoted(field, b',').next()?;
    parameter(element, name)
}

/// The value of a parameter of an element of `Forwarded`. None if it is not there, or twice, or if the element is
/// malformed.
fn parameter<'e>(element: &'e [u8], wanted: &str) -> Option<&'e [u8]> {
    if !is_well_formed(element) {
        return None;
    }
    let mut values = rsplit_unquoted(element, b';').filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at(equals);
        name.trim_ascii()
            .eq_ignore_ascii_case(wanted.as_bytes())
            .then(|| value[1..].trim_ascii())
    });
    let value = values.next().filter(|_| values.next().is_none())?;
    let unquoted = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(value))
}

/// The address of an element of `Forwarded`: `for="[2001:db8::1]:4711";proto=https`. None if it has
/// no `for`, or two.
fn parse_element(element: &[u8]) -> Option<IpAddr> {
    // An address has no use for escapes within the quotes: with one, it does not parse.
    parse_node(parameter(element, "for")?)
}

/// The address of an entry: `203.0.113.7`, `203.0.113.7:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn parse_node(node: &[u8]) -> Option<IpAddr> {
    let node = str::from_utf8(node.trim_ascii()).ok()?;
    if let Some(ip) = parse(node) {
        return Some(ip);
    }
    let (ip, port) = if let Some(bracketed) = node.strip_prefix('[') {
        let (ip, after) = bracketed.split_once(']')?;
        let port = if after.is_empty() {
            None
        } else {
            Some(after.strip_prefix(':')?)
        };
        (IpAddr::V6(ip.parse().ok()?), port)
    } else {
        let (ip, port) = node.split_once(':')?;
        (IpAddr::V4(ip.parse::<Ipv4Addr>().ok()?), Some(port))
    };
    port.is_none_or(is_port).then(|| canonical(ip))
}

/// Whether `text` is a port, or a name that hides one, such as `_a1`.
fn is_port(text: &str) -> bool {
    let hidden = text.strip_prefix('_');
    let may_hide = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match hidden {
        Some(name) => !name.is_empty() && name.bytes().all(may_hide),
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}

/// Whether every quote in an element of `Forwarded` is closed, and nothing outside of quotes is escaped. Then pairing
/// its quotes from the left and from the right gives the same pairs.
fn is_well_formed(element: &[u8]) -> bool {
    let (mut is_quoted, mut bytes) = (false, element.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' if !is_quoted => return false,
            // The escaped character; if there is none, the quote stays open.
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    !is_quoted
}

/// The parts of `text` between separators that are not in a quoted string, from the right.
///
/// Quotes are paired from the right as well. A quote that a client left open then ends in what the
/// client wrote, and cannot swallow what a proxy has put after it.
fn rsplit_unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    iter::from_fn(move || {
        let text = rest.take()?;
        let mut quoted = false;
        for (index, &byte) in text.iter().enumerate().rev() {
            if byte == b'"' && !is_escaped(&text[..index]) {
                quoted = !quoted;
            } else if byte == separator && !quoted {
                rest = Some(&text[..index]);
                return Some(&text[index + 1..]);
            }
        }
        Some(text)
    })
}

/// Whether the character after `before` has a backslash that is not one of a pair.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}
