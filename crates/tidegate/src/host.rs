//! Normalises hosts, for rules and routes alike.
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
    if let Some((name, has_upper_case)) = name_of(host) {
        return Ok(if has_upper_case {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        });
    }
    let error = || HostError {
        host: shortened(host),
    };
    let bracketed = host.strip_prefix('[').ok_or_else(error)?;
    let (address, port) = bracketed.split_once(']').ok_or_else(error)?;
    let address: Ipv6Addr = address.parse().map_err(|_| error())?;
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return Err(error());
    }
    Ok(Cow::Owned(format!("[{address}]")))
}

/// The name in `name[.][:digits]`, and whether it has letters in upper case. Looks at each byte once: every request
/// has a host.
fn name_of(host: &str) -> Option<(&str, bool)> {
    // A label is not empty, so that no dot follows another, and none is at the beginning.
    let (mut is_in_label, mut has_upper_case) = (false, false);
    let mut end = host.len();
    for (index, byte) in host.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => is_in_label = true,
            b'A'..=b'Z' => (is_in_label, has_upper_case) = (true, true),
            b'.' if is_in_label => is_in_label = false,
            b':' if is_port(&host[index + 1..]) => {
                end = index;
                break;
            }
            _ => return None,
        }
    }
    let name = &host[..end];
    let name = if is_in_label {
        name
    } else {
        name.strip_suffix('.')?
    };
    Some((name, has_upper_case))
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
