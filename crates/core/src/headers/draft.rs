//! The two fields of draft-ietf-httpapi-ratelimit-headers-10: lists of structured fields
//! (RFC 9651), an item for each limit.

use std::fmt::Write as _;

use super::{Item, push_integer, seconds_to_reset, seconds_to_retry};
use crate::algorithm::Form;
use crate::limit::{Limit, Window};
use crate::time::{Micros, Timestamp};

/// The largest integer of a structured field: fifteen digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// `RateLimit-Policy`: the quota (`q`), its unit (`qu`) if that is not requests, and the window (`w`) of each limit.
pub(super) fn push_policies(text: &mut String, items: &[Item<'_>]) {
    push_list(text, items, |text, item| {
        let Some(limit) = item.limit else {
            return text.push_str(";q=0");
        };
        push_parameter(text, ";q=", limit.capacity());
        if let Some(unit) = item.unit {
            text.push_str(";qu=");
            push_string(text, unit);
        }
        match time_to_grant(limit, item.outcome.at) {
            Some(time) => push_parameter(text, ";w=", time.ceil_seconds()),
            None => text.push_str(";qu=\"concurrent-requests\""),
        }
    });
}

/// `RateLimit`: the remaining quota of each limit (`r`), and the seconds until there is more (`t`).
pub(super) fn push_standings(text: &mut String, items: &[Item<'_>]) {
    push_list(text, items, |text, item| {
        push_parameter(text, ";r=", item.outcome.remaining);
        let seconds = if item.outcome.allowed {
            Some(seconds_to_reset(item.outcome))
        } else {
            seconds_to_retry([item.as_charged()])
        };
        if let Some(seconds) = seconds {
            push_parameter(text, ";t=", seconds);
        }
    });
}

fn push_list(
    text: &mut String,
    items: &[Item<'_>],
    push_parameters: impl Fn(&mut String, &Item<'_>),
) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        push_string(text, item.name);
        push_parameters(text, item);
    }
}

fn push_parameter(text: &mut String, name: &str, value: u64) {
    text.push_str(name);
    push_integer(text, value.min(MAX_INTEGER));
}

/// Writes `name` as a String, which holds printable ASCII only.
///
/// Any other character is percent-encoded, byte by byte of its UTF-8, in lower case as a Display
/// String would: the draft does not admit one of those, and names that differ should stay
/// different, since clients join the two fields by them. A `%` is left as it is, so that a name in
/// ASCII reads the same here as everywhere else, even if another name could be written to match it.
fn push_string(text: &mut String, name: &str) {
    text.push('"');
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if name.bytes().all(is_plain) {
        text.push_str(name);
    } else {
        for byte in name.bytes() {
            match byte {
                b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
                b' '..=b'~' => text.push(char::from(byte)),
                // Writing to a String cannot fail.
                _ => drop(write!(text, "%{byte:02x}")),
            }
        }
    }
    text.push('"');
}

/// The time in which a limit grants its capacity: the time to fill a bucket, or the length of the
/// calendar window that holds `at`. Never zero. `None` for concurrency, which has no window.
fn time_to_grant(limit: &Limit, at: Timestamp) -> Option<Micros> {
    if let Form::Bucket(bucket) = limit.form() {
        return Some(bucket.to_full());
    }
    limit.window().map(|window| match window {
        Window::Span(span) => span,
        Window::Month | Window::Year => {
            let (start, end) = window.around(at);
            end.since(start)
        }
    })
}
