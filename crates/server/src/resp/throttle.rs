//! `CL.THROTTLE key max_burst count period [quantity]`, answered as redis-cell answers it.

use std::borrow::Cow;
use std::fmt::Write as _;

use tidegate::gate::Charged;
use tidegate::{Limit, Micros};

use super::arguments::RespCommand;
use super::replies::Replies;

/// How many limits a connection caches: most clients use one or two.
const REMEMBERED: usize = 4;

/// A parsed command.
#[derive(Debug)]
pub(super) struct Throttle<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) limit: &'a Limit,
    pub(super) cost: u64,
}

/// A cache of limits, by the numbers of earlier commands.
#[derive(Debug, Default)]
pub(super) struct ThrottleLimits {
    known: [Option<(Numbers, Limit)>; REMEMBERED],
    next: usize,
}

/// `max_burst`, `count` and `period`, as they were sent.
type Numbers = [i64; 3];

/// The names of the arguments, in their order.
const NAMES: [&str; 4] = ["max_burst", "count", "period", "quantity"];

/// Reads a command.
#[inline]
pub(super) fn read<'a>(
    command: RespCommand<'a>,
    limits: &'a mut ThrottleLimits,
) -> Result<Throttle<'a>, String> {
    if !(5..=6).contains(&command.len()) {
        return Err(
            "CL.THROTTLE takes `key max_burst count period [quantity]`: the burst beyond the first \
             request, and `count` requests per `period` seconds"
                .to_owned(),
        );
    }
    let mut numbers = [0; 3];
    for (place, number) in numbers.iter_mut().enumerate() {
        *number = integer(command, place + 2)?;
    }
    let cost = if command.len() == 6 {
        let quantity = integer(command, 5)?;
        u64::try_from(quantity)
            .map_err(|_| format!("quantity must not be negative, and is {quantity}"))?
    } else {
        1
    };
    Ok(Throttle {
        key: key(command.get(1)),
        limit: limits.get(numbers)?,
        cost,
    })
}

/// Writes the five numbers of an answer.
#[inline]
pub(super) fn write(charged: &Charged, replies: &mut Replies) {
    if charged.is_failed() {
        replies.error("UNAVAILABLE", super::UNDECIDED);
        return;
    }
    let outcome = &charged.outcome;
    let retry = match outcome.retry {
        tidegate::Retry::After(wait) => seconds(wait),
        tidegate::Retry::Now | tidegate::Retry::Never => -1,
    };
    replies.array(5);
    replies.integer(i64::from(!outcome.allowed));
    replies.integer(whole(outcome.limit));
    replies.integer(whole(outcome.remaining));
    replies.integer(retry);
    replies.integer(seconds(outcome.reset_at.since(outcome.at)));
}

/// Whole seconds, rounded up.
fn seconds(span: Micros) -> i64 {
    whole(span.get().div_ceil(Micros::SECOND.get()))
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A key as text. One that is not UTF-8 is written in hexadecimal, after a byte that no other key begins with.
fn key(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with('\0') => Cow::Borrowed(text),
        _ => {
            let mut text = String::with_capacity(1 + 2 * bytes.len());
            text.push('\0');
            for byte in bytes {
                // Writing to a string does not fail.
                let _ = write!(text, "{byte:02x}");
            }
            Cow::Owned(text)
        }
    }
}

#[inline]
fn integer(command: RespCommand<'_>, place: usize) -> Result<i64, String> {
    let given = command.get(place);
    parse(given).ok_or_else(|| no_integer(given, place))
}

#[cold]
fn no_integer(given: &[u8], place: usize) -> String {
    let given = super::quoted(given);
    let name = NAMES.get(place.saturating_sub(2)).unwrap_or(&"argument");
    format!("{name} must be a whole number, not `{given}`")
}

/// A whole number as Redis reads one: digits, with an optional minus.
#[inline]
fn parse(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number
            .checked_mul(10)?
            .checked_add(i64::from(digit - b'0'))?;
    }
    Some(if is_negative { -number } else { number })
}

impl ThrottleLimits {
    /// The limit with these numbers.
    fn get(&mut self, numbers: Numbers) -> Result<&Limit, String> {
        let is_it = |known: &Option<(Numbers, Limit)>| {
            known.as_ref().is_some_and(|(known, _)| *known == numbers)
        };
        let place = if let Some(place) = self.known.iter().position(is_it) {
            place
        } else {
            let limit = limit(numbers)?;
            let place = self.next;
            self.next = (place + 1) % REMEMBERED;
            self.known[place] = Some((numbers, limit));
            place
        };
        // It was found or inserted above.
        let known = self.known[place].as_ref().map(|(_, limit)| limit);
        known.ok_or_else(|| "the limit cannot be used".to_owned())
    }
}

fn limit([max_burst, count, period]: Numbers) -> Result<Limit, String> {
    let positive = |name: &str, number: i64| match u64::try_from(number) {
        Ok(0) => Err(format!("{name} must not be 0")),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("{name} must not be negative, and is {number}")),
    };
    let max_burst = u64::try_from(max_burst)
        .map_err(|_| format!("max_burst must not be negative, and is {max_burst}"))?;
    let (count, period) = (positive("count", count)?, positive("period", period)?);
    let period = period.saturating_mul(Micros::SECOND.get());
    Limit::portable_bucket(count, Micros::new(period), max_burst.saturating_add(1))
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(numbers: Numbers) -> Result<Limit, String> {
        limit(numbers)
    }

    #[test]
    fn numbers_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("0", Some(0)), ("-0", Some(0)), ("15", Some(15)), ("-3", Some(-3)),
            ("9223372036854775807", Some(i64::MAX)), ("9223372036854775808", None),
            ("", None), ("-", None), ("+1", None), ("1.5", None), (" 1", None), ("1e3", None),
        ];
        for (text, number) in table {
            assert_eq!(parse(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn limits_that_cannot_be_are_refused_and_the_others_remembered() {
        #[rustfmt::skip]
        let table = [
            ([-1, 30, 60],                  "max_burst must not be negative, and is -1"),
            ([15, 0, 60],                   "count must not be 0"),
            ([15, -2, 60],                  "count must not be negative, and is -2"),
            ([15, 30, 0],                   "period must not be 0"),
            ([i64::MAX, 30, 60],            "burst"),
            ([15, i64::MAX, 60],            "count"),
            ([15, 30, i64::MAX],            "window"),
        ];
        for (numbers, expected) in table {
            let error = limit_of(numbers).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let mut limits = ThrottleLimits::default();
        for round in 0..3 {
            for count in 1..=9 {
                let limit = limits.get([15, count, 60]).unwrap();
                assert_eq!(limit.capacity(), 16, "{round}");
                assert_eq!(limit.rate().count, count.unsigned_abs());
            }
        }
    }

    #[test]
    fn no_two_keys_become_one() {
        let keys: [&[u8]; 6] = [b"a", b"\xff", b"\0ff", b"\0", b"", b"00"];
        let texts: std::collections::HashSet<_> = keys.iter().map(|bytes| key(bytes)).collect();
        assert_eq!(texts.len(), keys.len());
        assert_eq!(key(b"\xff"), "\0ff");
        assert_eq!(key(b"\0ff"), "\x00006666");
    }
}
