//! Reads limits and spans of time as people write them.

use std::str::FromStr;

use super::spelling::respelled;
use super::{LimitError, Rate, Window};
use crate::time::Micros;

const UNITS: &str = "`ms`, `s`, `m`, `h`, `d`, `w`, `second`, `minute`, `hour`, `day`, `week`, \
                     `month` or `year`";

impl FromStr for Rate {
    type Err = LimitError;

    /// Reads `count`, `/` or `per`, a window, and maybe `burst` with a number: `100/minute burst
    /// 20`, `10 per 2 hours`, `5/30s`. Case and spaces do not matter. A count alone is a limit
    /// without a window, for concurrency.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        read_rate(text).map_err(|reason| refusal(text, reason))
    }
}

fn read_rate(text: &str) -> Result<Rate, String> {
    let mut words = Words::new(text);

    let count = words.needed("it does not start with a count")?;
    let window = if words.take("/") || words.take("per") {
        Some(words.window()?)
    } else {
        None
    };
    let burst = if words.take("burst") {
        Some(words.needed("`burst` needs a number")?)
    } else {
        None
    };
    match words.next() {
        None => Ok(Rate {
            count,
            window,
            burst,
        }),
        Some(rest) => Err(format!("`{rest}` is not expected there")),
    }
}

fn refusal(text: &str, reason: String) -> LimitError {
    let text = text.trim().to_owned();
    match respelled(&text) {
        Some(instead) => LimitError::Spelling { text, instead },
        None => LimitError::Syntax { text, reason },
    }
}

impl Rate {
    /// Reads several limits, separated by `;`, `,` or `|`: `10/minute; 2/second`.
    ///
    /// At least one is returned, and no two have the same window.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, LimitError> {
        // A comma also separates thousands. Such a number would be read as two limits that are never valid together.
        for part in text.split([';', '|']).filter(|part| part.contains(',')) {
            if let Some(instead) = respelled(part) {
                let text = part.trim().to_owned();
                return Err(LimitError::Spelling { text, instead });
            }
        }
        let mut rates: Vec<Self> = Vec::new();
        for part in text.split([';', ',', '|']) {
            let rate: Self = part.parse()?;
            if let Some(window) = rate.window
                && rates.iter().any(|earlier| earlier.window == rate.window)
            {
                return Err(LimitError::SameWindowTwice { window });
            }
            rates.push(rate);
        }
        Ok(rates)
    }
}

impl FromStr for Micros {
    type Err = LimitError;

    /// Reads a span such as `500ms`, `30s`, `2 hours` or `0s`.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let wrong = |reason: String| LimitError::SpanSyntax {
            text: text.trim().to_owned(),
            reason,
        };
        let mut words = Words::new(text);
        let missing = "it does not start with a number";
        let count = words.needed(missing).map_err(wrong)?;
        let unit = words
            .next()
            .ok_or_else(|| wrong("the unit is missing".into()))?;
        let Some(Window::Span(span)) = unit_named(unit) else {
            return Err(wrong(format!("`{unit}` is not a unit of fixed length")));
        };
        match words.next() {
            None => checked_times(span, count).map_err(wrong),
            Some(rest) => Err(wrong(format!("`{rest}` is not expected there"))),
        }
    }
}

/// The words of a text: runs of digits, runs of letters, and single other characters.
pub(super) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text.trim() }
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        let first = self.rest.chars().next()?;
        let belongs: fn(char) -> bool = match first {
            '0'..='9' => |c| c.is_ascii_digit(),
            c if c.is_alphabetic() => char::is_alphabetic,
            _ => return Some(&self.rest[..first.len_utf8()]),
        };
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        Some(&self.rest[..end])
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.rest = self.rest[word.len()..].trim_start();
        Some(word)
    }

    /// Steps over `word` if it comes next, in whatever case.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let found = self
            .peek()
            .is_some_and(|next| next.eq_ignore_ascii_case(word));
        if found {
            self.next();
        }
        found
    }

    /// Steps over the first of `words` that comes next.
    pub(super) fn take_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.take(word))
    }

    /// The digits that come next, if any do.
    pub(super) fn take_digits(&mut self) -> Option<&'a str> {
        let digits = self.peek()?;
        if digits.starts_with(|c: char| c.is_ascii_digit()) {
            self.next()
        } else {
            None
        }
    }

    /// The number that comes next, if one does.
    fn number(&mut self) -> Result<Option<u64>, String> {
        let Some(digits) = self.take_digits() else {
            return Ok(None);
        };
        let too_large = |_| format!("`{digits}` is too large a number");
        digits.parse().map(Some).map_err(too_large)
    }

    /// The number that has to come next.
    fn needed(&mut self, missing: &str) -> Result<u64, String> {
        self.number()?.ok_or_else(|| missing.to_owned())
    }

    fn window(&mut self) -> Result<Window, String> {
        let count = self.number()?;
        let unit = self
            .next()
            .ok_or_else(|| format!("the window is missing, one of {UNITS}"))?;
        match (unit_named(unit), count) {
            (None, _) => Err(format!("`{unit}` is not a unit; use {UNITS}")),
            (Some(Window::Span(span)), count) => {
                checked_times(span, count.unwrap_or(1)).map(Window::Span)
            }
            (Some(calendar), None | Some(1)) => Ok(calendar),
            (Some(calendar), Some(_)) => Err(format!("a `{calendar}` is counted one at a time")),
        }
    }
}

fn checked_times(unit: Micros, count: u64) -> Result<Micros, String> {
    unit.get()
        .checked_mul(count)
        .filter(|micros| *micros <= Micros::MAX.get())
        .map(Micros::new)
        .ok_or_else(|| "the span is too long; 366 days are the most".to_owned())
}

pub(super) fn unit_named(word: &str) -> Option<Window> {
    let word = word.to_ascii_lowercase();
    let short = match word.as_str() {
        "ms" => Some(Micros::MILLISECOND),
        "s" => Some(Micros::SECOND),
        "m" => Some(Micros::MINUTE),
        "h" => Some(Micros::HOUR),
        "d" => Some(Micros::DAY),
        "w" => Some(Micros::WEEK),
        _ => None,
    };
    if let Some(span) = short {
        return Some(Window::Span(span));
    }
    match word.strip_suffix('s').unwrap_or(&word) {
        "millisecond" => Some(Window::Span(Micros::MILLISECOND)),
        "second" => Some(Window::Span(Micros::SECOND)),
        "minute" => Some(Window::Span(Micros::MINUTE)),
        "hour" => Some(Window::Span(Micros::HOUR)),
        "day" => Some(Window::Span(Micros::DAY)),
        "week" => Some(Window::Span(Micros::WEEK)),
        "month" => Some(Window::Month),
        "year" => Some(Window::Year),
        _ => None,
    }
}
