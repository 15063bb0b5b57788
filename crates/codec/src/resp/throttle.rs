//! `CL.THROTTLE key max_burst count period [quantity]`, answered as redis-cell answers it.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate::gate::Charged;
use tidegate::printable::hexadecimal;
use tidegate::{Limit, Micros};

use super::arguments::RespCommand;
use super::replies::Replies;
use crate::CodecError;

/// How many limits a connection caches: most clients use one or two.
const REMEMBERED: usize = 4;
/// The longest numbers whose bytes are cached, including separators.
const LONGEST_WRITTEN: usize = 48;

/// A parsed command.
#[derive(Debug)]
pub struct Throttle<'a> {
    /// The key, as text.
    pub key: Cow<'a, str>,
    /// The limit that the command brings.
    pub limit: &'a Limit,
    /// The quantity, or 1.
    pub cost: u64,
}

/// A cache of limits, by the numbers of earlier commands.
#[derive(Debug, Default)]
pub struct ThrottleLimits {
    known: SmallVec<[KnownLimit; REMEMBERED]>,
    /// The index of the one that was used last.
    latest: usize,
    /// The one to replace next.
    oldest: usize,
}

/// A limit of an earlier command.
#[derive(Debug)]
struct KnownLimit {
    /// The bytes of its numbers as they were first sent: the same bytes need not be parsed again. Empty if they were
    /// a line, or long.
    written: SmallVec<[u8; LONGEST_WRITTEN]>,
    numbers: Numbers,
    limit: Limit,
}

/// `max_burst`, `count` and `period`, as they were sent.
type Numbers = [i64; 3];

/// The names of the arguments, in their order.
const NAMES: [&str; 4] = ["max_burst", "count", "period", "quantity"];

/// Reads a command.
#[inline]
pub fn read<'a>(
    command: RespCommand<'a>,
    limits: &'a mut ThrottleLimits,
) -> Result<Throttle<'a>, CodecError> {
    if !(5..=6).contains(&command.len()) {
        return Err(CodecError::invalid(
            "CL.THROTTLE takes `key max_burst count period [quantity]`: the burst beyond the first \
             request, and `count` requests per `period` seconds",
        ));
    }
    let known = limits.find(command);
    let numbers = match known {
        Some(_) => Numbers::default(),
        None => [
            integer(command, 2)?,
            integer(command, 3)?,
            integer(command, 4)?,
        ],
    };
    let cost = if command.len() == 6 {
        let quantity = integer(command, 5)?;
        u64::try_from(quantity).map_err(|_| {
            CodecError::invalid(format!("quantity must not be negative, and is {quantity}"))
        })?
    } else {
        1
    };
    let limit = match known {
        Some(index) => limits.at(index)?,
        None => limits.get(numbers, command.span(2, 4).unwrap_or_default())?,
    };
    Ok(Throttle {
        key: key(command.get(1)),
        limit,
        cost,
    })
}

/// Writes the five numbers of an answer.
#[inline]
pub fn write(charged: &Charged, replies: &mut Replies) {
    if charged.is_failed() {
        replies.error("UNAVAILABLE", super::UNDECIDED);
        return;
    }
    let outcome = &charged.outcome;
    let retry = match outcome.retry {
        tidegate::Retry::After(wait) => seconds(wait),
        tidegate::Retry::Now | tidegate::Retry::Never => -1,
    };
    replies.five_integers([
        i64::from(!outcome.allowed),
        whole(outcome.limit),
        whole(outcome.remaining),
        retry,
        seconds(outcome.reset_at.since(outcome.at)),
    ]);
}

/// Whole seconds, rounded up.
#[inline]
fn seconds(span: Micros) -> i64 {
    whole(span.get().div_ceil(Micros::SECOND.get()))
}

#[inline]
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A key as text. One that is not UTF-8 is written in hexadecimal, after a byte that no other key begins with.
#[inline]
fn key(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.first() != Some(&0) => Cow::Borrowed(text),
        _ => Cow::Owned(format!("\0{}", hexadecimal(bytes))),
    }
}

#[inline]
fn integer(command: RespCommand<'_>, index: usize) -> Result<i64, CodecError> {
    let given = command.get(index);
    parse(given).ok_or_else(|| no_integer(given, index))
}

#[cold]
fn no_integer(given: &[u8], index: usize) -> CodecError {
    let given = super::quoted(given);
    let name = NAMES.get(index.saturating_sub(2)).unwrap_or(&"argument");
    CodecError::invalid(format!("{name} must be a whole number, not `{given}`"))
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
    /// The limit of an earlier command with the same bytes.
    #[inline]
    fn find(&mut self, command: RespCommand<'_>) -> Option<usize> {
        let written = command.span(2, 4)?;
        let is_it = |known: &KnownLimit| known.written[..] == *written;
        if self.known.get(self.latest).is_some_and(is_it) {
            return Some(self.latest);
        }
        self.latest = self.known.iter().position(is_it)?;
        Some(self.latest)
    }

    #[inline]
    fn at(&self, index: usize) -> Result<&Limit, CodecError> {
        let known = self.known.get(index).map(|known| &known.limit);
        known.ok_or_else(|| CodecError::invalid("the limit cannot be used"))
    }

    /// The limit with these numbers, which were written so.
    #[cold]
    fn get(&mut self, numbers: Numbers, written: &[u8]) -> Result<&Limit, CodecError> {
        let is_it = |known: &KnownLimit| known.numbers == numbers;
        if let Some(index) = self.known.iter().position(is_it) {
            return self.at(index);
        }
        let limit = limit(numbers).map_err(CodecError::Invalid)?;
        let is_short = written.len() <= LONGEST_WRITTEN;
        let known = KnownLimit {
            written: SmallVec::from_slice(if is_short { written } else { &[] }),
            numbers,
            limit,
        };
        let index = self.oldest;
        self.oldest = (index + 1) % REMEMBERED;
        match self.known.get_mut(index) {
            Some(replaced) => *replaced = known,
            None => self.known.push(known),
        }
        self.at(index)
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
                let written = format!("15 {count} 60");
                let limit = limits.get([15, count, 60], written.as_bytes()).unwrap();
                assert_eq!(limit.capacity(), 16, "{round}");
                assert_eq!(limit.rate().count, count.unsigned_abs());
            }
        }
    }

    /// The capacity and the rate that a command asks for, by a cache that has seen others.
    fn asked(limits: &mut ThrottleLimits, bytes: &[u8]) -> Result<(u64, u64), String> {
        let mut arguments = super::super::Arguments::default();
        arguments.read(bytes).unwrap().unwrap();
        let asked = read(arguments.of(bytes), limits).map_err(|error| error.to_string())?;
        Ok((asked.limit.capacity(), asked.limit.rate().count))
    }

    #[test]
    fn a_limit_is_found_again_by_its_bytes_and_never_another() {
        let array = |numbers: [&str; 3]| {
            let [first, second, third] =
                numbers.map(|text| format!("${}\r\n{text}\r\n", text.len()));
            format!("*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\na\r\n{first}{second}{third}")
        };
        #[rustfmt::skip]
        let table = [
            (array(["15", "30", "60"]),               Ok((16, 30))),
            (array(["1", "53", "60"]),                Ok((2, 53))),
            (array(["15", "3", "060"]),               Ok((16, 3))),
            ("CL.THROTTLE a 15 30 60\r\n".to_owned(), Ok((16, 30))),
            ("CL.THROTTLE a 1 53 060\r\n".to_owned(), Ok((2, 53))),
            (array(["015", "30", "60"]),              Ok((16, 30))),
            (array(["0000000000000000000000000000000000000000000000015", "31", "60"]), Ok((16, 31))),
            (array(["15", "30\r\n$2\r\n60", ""]),     Err("count must be a whole number, not `30\\r\\n$2\\r\\n60`".to_owned())),
            (array(["15", "0", "60"]),                Err("count must not be 0".to_owned())),
        ];
        let mut limits = ThrottleLimits::default();
        for round in 0..3 {
            for (bytes, expected) in &table {
                let found = asked(&mut limits, bytes.as_bytes());
                assert_eq!(&found, expected, "{bytes} in round {round}");
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
