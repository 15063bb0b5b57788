//! What a text that is not a limit probably means, written as a limit: for messages only.

use super::parse::{Words, unit_named};
use super::{MAX_COUNT, MAX_WINDOW, Rate, Window};
use crate::time::Micros;

/// The limit that a text probably means, as it has to be written: `10000/day` for `10k/day`, `1 per 2 seconds` for
/// `0.5/second`. `None` if that would be a guess.
pub(super) fn respelled(text: &str) -> Option<String> {
    let mut words = Words::new(text);
    let amount = Amount::read(&mut words)?;
    words.take_any(&["requests", "request", "reqs", "req", "r", "calls", "hits"]);
    let window = if words.take_any(&["/", "per", "a", "an", "each", "every"]) {
        Some(window(&mut words)?)
    } else {
        let short = [
            ("rps", Micros::SECOND),
            ("qps", Micros::SECOND),
            ("rpm", Micros::MINUTE),
            ("rph", Micros::HOUR),
        ];
        let meant = short.into_iter().find(|(word, _)| words.take(word));
        meant.map(|(_, span)| Window::Span(span))
    };
    let mut rate = amount.over(window)?;
    words.take(",");
    if words.take("burst") {
        words.take_any(&["of", "=", ":"]);
        rate = rate.burst(Amount::read(&mut words)?.whole()?);
    }
    let is_read = words.next().is_none();
    let is_valid = |number: u64| (1..=MAX_COUNT).contains(&number);
    let numbers = [rate.count, rate.burst.unwrap_or(1)];
    (is_read && numbers.into_iter().all(is_valid)).then(|| written(&rate))
}

/// A number as people write it, as a fraction.
struct Amount {
    numerator: u64,
    denominator: u64,
}

impl Amount {
    fn read(words: &mut Words<'_>) -> Option<Self> {
        let mut digits = words.take_digits()?.to_owned();
        while words.take_any(&["_", "'", ","]) {
            digits.push_str(words.take_digits().filter(|group| group.len() == 3)?);
        }
        let mut denominator: u64 = 1;
        if words.take(".") {
            let decimals = words.take_digits()?;
            digits.push_str(decimals);
            denominator = 10_u64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
        }
        // A small `m` may be minutes.
        let factor: u64 = match words.peek() {
            Some("k" | "K") => 1_000,
            Some("M") => 1_000_000,
            _ => 1,
        };
        if factor > 1 {
            words.next();
        }
        Some(Self {
            numerator: digits.parse::<u64>().ok()?.checked_mul(factor)?,
            denominator,
        })
    }

    fn whole(&self) -> Option<u64> {
        let is_whole = self.numerator.is_multiple_of(self.denominator);
        is_whole.then(|| self.numerator / self.denominator)
    }

    /// This many in a window. Less than one, or a fraction, is a whole number in a longer one.
    fn over(&self, window: Option<Window>) -> Option<Rate> {
        let Some(window) = window else {
            return self.whole().map(Rate::concurrent);
        };
        if let Some(count) = self.whole() {
            return Some(Rate::new(count, window));
        }
        let Window::Span(span) = window else {
            return None;
        };
        let shared = greatest_common_divisor(self.numerator, self.denominator);
        let span = span.get().checked_mul(self.denominator / shared)?;
        let is_short_enough = span <= MAX_WINDOW.get();
        is_short_enough.then(|| Rate::new(self.numerator / shared, Micros::new(span)))
    }
}

fn window(words: &mut Words<'_>) -> Option<Window> {
    let count = match words.take_digits() {
        Some(digits) => digits.parse().ok()?,
        None => 1,
    };
    let unit = words.next()?;
    let short = [
        ("sec", Micros::SECOND),
        ("min", Micros::MINUTE),
        ("hr", Micros::HOUR),
    ];
    let lower = unit.to_ascii_lowercase();
    let named = lower.strip_suffix('s').unwrap_or(&lower);
    let short = short.into_iter().find(|(name, _)| *name == named);
    match (unit_named(unit), short) {
        (Some(Window::Span(span)), _) | (None, Some((_, span))) => {
            let span = span.get().checked_mul(count)?;
            (span <= MAX_WINDOW.get()).then(|| Window::Span(Micros::new(span)))
        }
        (calendar, _) => calendar.filter(|_| count == 1),
    }
}

fn greatest_common_divisor(mut left: u64, mut right: u64) -> u64 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left.max(1)
}

/// A rate as a sentence has it: `1 per 2 seconds` rather than `1/2s`, which reads like a half.
fn written(rate: &Rate) -> String {
    let units = [
        (Micros::WEEK, "weeks"),
        (Micros::DAY, "days"),
        (Micros::HOUR, "hours"),
        (Micros::MINUTE, "minutes"),
        (Micros::SECOND, "seconds"),
    ];
    let (Some(Window::Span(span)), None) = (rate.window, rate.burst) else {
        return rate.to_string();
    };
    let divides = |unit: Micros| span.get().is_multiple_of(unit.get());
    match units.iter().find(|(unit, _)| divides(*unit)) {
        Some((unit, name)) if span > *unit => {
            format!("{} per {} {name}", rate.count, span.get() / unit.get())
        }
        _ => rate.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_by_hand() {
        #[rustfmt::skip]
        let table = [
            // text                        the limit
            ("10k/day",                    Some("10000/day")),
            ("10K per day",                Some("10000/day")),
            ("1M/month",                   Some("1000000/month")),
            ("1.5k/day",                   Some("1500/day")),
            ("1_000/day",                  Some("1000/day")),
            ("1'000'000/day",              Some("1000000/day")),
            ("1,000/day",                  Some("1000/day")),
            ("1,000",                      Some("1000")),
            ("0.5/second",                 Some("1 per 2 seconds")),
            ("2.5/minute",                 Some("5 per 2 minutes")),
            ("0.1 per hour",               Some("1 per 10 hours")),
            ("0.001/ms",                   Some("1/second")),
            ("1.0/second",                 Some("1/second")),
            ("100 requests per minute",    Some("100/minute")),
            ("100 req/min",                Some("100/minute")),
            ("10 r/s",                     Some("10/second")),
            ("10/sec",                     Some("10/second")),
            ("10/2 hrs",                   Some("10 per 2 hours")),
            ("10/90 mins",                 Some("10 per 90 minutes")),
            ("10 a minute",                Some("10/minute")),
            ("5 every 2 hours",            Some("5 per 2 hours")),
            ("10rps",                      Some("10/second")),
            ("600 rpm",                    Some("600/minute")),
            ("100/minute burst 1k",        Some("100/minute burst 1000")),
            ("100/minute, burst 20",       Some("100/minute burst 20")),
            ("100/minute burst=20",        Some("100/minute burst 20")),
            ("10m/day",                    None),
            ("0.5/month",                  None),
            ("0.5",                        None),
            ("0k/day",                     None),
            ("1.5M/day extra",             None),
            ("1,00/day",                   None),
            ("9999999999M/day",            None),
            ("99999999999999999999/s",     None),
            ("0.00000000001/day",          None),
            ("2 per 2 months",             None),
            ("10/fortnight",               None),
            ("",                           None),
        ];
        for (text, expected) in table {
            assert_eq!(respelled(text).as_deref(), expected, "{text}");
            if let Some(limit) = expected {
                assert!(limit.parse::<Rate>().is_ok(), "{limit}");
            }
        }
    }
}
