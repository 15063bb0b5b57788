//! The two fields of draft-ietf-httpapi-ratelimit-headers-10: lists of structured fields
//! (RFC 9651), an item for each limit.

use std::fmt::{self, Write as _};

use super::{Item, seconds_to_reset, seconds_to_retry};
use crate::algorithm::Form;
use crate::limit::{Limit, Window};
use crate::time::{Micros, Timestamp};

/// The largest integer of a structured field: fifteen digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// `RateLimit-Policy`: what each limit grants (`q`) and in which time (`w`).
pub(super) struct Policies<'a>(pub(super) &'a [Item<'a>]);

/// `RateLimit`: what is left of each limit (`r`), and when there is more (`t`).
pub(super) struct Standings<'a>(pub(super) &'a [Item<'a>]);

impl fmt::Display for Policies<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.0, |f, item| {
            let Some(limit) = item.limit else {
                return f.write_str(";q=0");
            };
            write!(f, ";q={}", integer(limit.capacity()))?;
            match time_to_grant(limit, item.outcome.at) {
                Some(time) => write!(f, ";w={}", integer(time.ceil_seconds())),
                None => f.write_str(";qu=\"concurrent-requests\""),
            }
        })
    }
}

impl fmt::Display for Standings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.0, |f, item| {
            write!(f, ";r={}", integer(item.outcome.remaining))?;
            let seconds = if item.outcome.allowed {
                Some(seconds_to_reset(item.outcome))
            } else {
                seconds_to_retry(item.outcome)
            };
            match seconds {
                Some(seconds) => write!(f, ";t={}", integer(seconds)),
                None => Ok(()),
            }
        })
    }
}

fn write_list(
    f: &mut fmt::Formatter<'_>,
    items: &[Item<'_>],
    write_parameters: impl Fn(&mut fmt::Formatter<'_>, &Item<'_>) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write_string(f, item.name)?;
        write_parameters(f, item)?;
    }
    Ok(())
}

/// Writes `text` as a String, which holds printable ASCII only.
///
/// Any other character is percent-encoded, byte by byte of its UTF-8, in lower case as a Display
/// String would: the draft does not admit one of those, and names that differ should stay
/// different, since clients join the two fields by them. A `%` is left as it is, so that a name in
/// ASCII reads the same here as everywhere else, even if another name could be written to match it.
fn write_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
            b' '..=b'~' => f.write_char(char::from(byte))?,
            _ => write!(f, "%{byte:02x}")?,
        }
    }
    f.write_str("\"")
}

/// The time in which a limit grants its capacity: a bucket's time to fill, of a calendar window the
/// length of the one that holds `at`. Never zero; none for concurrency, which has no window.
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

fn integer(value: u64) -> u64 {
    value.min(MAX_INTEGER)
}
