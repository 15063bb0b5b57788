//! The one normaliser of hosts, for rules and routes alike.
//!
//! Servers do not agree on what a malformed host means: some cut it at the first colon, some at the last,
//! some do not look at it. So a host in any other form than the one described here is refused.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use crate::path::shortened;

#[cfg(test)]
mod tests;

/// A text that is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{host}` is not a host; write a name such as `api.example.com` or an IPv6 address such as `[2001:db8::7]`, with a port such as `:8443` or without"
)]
pub struct HostError {
    /// What was given, shortened when long.
    pub host: String,
}

/// The normal form of a host: a name in lower case, or an IPv6 address in brackets. It borrows, without
/// allocation, when `host` has that form already.
///
/// A host is `name[:digits]` or `[v6][:digits]`. The port and one dot at the end of a name are cut. A name
/// consists of labels of letters, digits, `-` and `_`, with single dots between them.
///
/// ```
/// use tidegate::host::normalise;
///
/// assert_eq!(normalise("API.example.com.:8443")?, "api.example.com");
/// assert_eq!(normalise("[2001:DB8:0::7]:80")?, "[2001:db8::7]");
/// assert!(normalise("api.example.com:80:80").is_err());
/// # Ok::<(), tidegate::host::HostError>(())
/// ```
pub fn normalise(host: &str) -> Result<Cow<'_, str>, HostError> {
    if is_normal_name(host) {
        return Ok(Cow::Borrowed(host));
    }
    let error = || HostError {
        host: shortened(host),
    };
    if let Some(bracketed) = host.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']').ok_or_else(error)?;
        let address: Ipv6Addr = address.parse().map_err(|_| error())?;
        if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
            return Err(error());
        }
        return Ok(Cow::Owned(format!("[{address}]")));
    }
    let name = match host.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => return Err(error()),
        None => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if !is_name(name) {
        return Err(error());
    }
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Ok(Cow::Owned(name.to_ascii_lowercase()));
    }
    Ok(Cow::Borrowed(name))
}

/// Whether it is a name in normal form already, as in nearly all requests. Looks at each byte once.
fn is_normal_name(host: &str) -> bool {
    let mut is_label_empty = true;
    for byte in host.bytes() {
        is_label_empty = match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => false,
            b'.' if !is_label_empty => true,
            _ => return false,
        };
    }
    !is_label_empty
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    // In one pass: a label is not empty, so that no dot follows another, and none is at either end.
    let mut is_in_label = false;
    for byte in name.bytes() {
        if byte == b'.' && is_in_label {
            is_in_label = false;
        } else if fits(byte) {
            is_in_label = true;
        } else {
            return false;
        }
    }
    is_in_label
}
