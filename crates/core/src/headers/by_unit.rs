//! The headers of language model providers: three for each unit, of the limit with the fewest left.

use super::{HeaderSettings, Item};
use crate::time::{Micros, Timestamp};

/// The unit of limits that name none.
const REQUESTS: &str = "requests";

impl HeaderSettings {
    /// Whether there are headers that go by unit.
    #[inline]
    pub fn are_by_unit(&self) -> bool {
        self.openai || self.anthropic
    }

    /// The headers by unit that `openai` and `anthropic` stand for, as names and values. `items` are as for
    /// [`headers`](Self::headers).
    ///
    /// ```
    /// use tidegate_core::headers::{HeaderSettings, Item};
    /// use tidegate_core::{Limit, Micros, Outcome, Retry, Timestamp};
    ///
    /// let limit: Limit = "100000/minute".parse()?;
    /// let now = Timestamp::from_seconds(1_794_770_000);
    /// let outcome = Outcome {
    ///     allowed: true,
    ///     limit: 100_000,
    ///     remaining: 99_940,
    ///     exceeded: 0,
    ///     retry: Retry::Now,
    ///     reset_at: now + Micros::from_millis(36),
    ///     delay: Micros::ZERO,
    ///     at: now,
    ///     is_remembered: false,
    /// };
    /// let item = Item { name: "tokens", limit: Some(&limit), unit: Some("input_tokens"), outcome: &outcome };
    /// let mut settings = HeaderSettings::NONE;
    /// settings.openai = true;
    /// assert_eq!(settings.headers_by_unit(&[item]), [
    ///     ("x-ratelimit-limit-input-tokens".to_owned(), "100000".to_owned()),
    ///     ("x-ratelimit-remaining-input-tokens".to_owned(), "99940".to_owned()),
    ///     ("x-ratelimit-reset-input-tokens".to_owned(), "36ms".to_owned()),
    /// ]);
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn headers_by_unit(&self, items: &[Item<'_>]) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        if !self.are_by_unit() {
            return headers;
        }
        for item in fewest_left(items) {
            let unit = item.unit.unwrap_or(REQUESTS).replace('_', "-");
            let outcome = item.outcome;
            let values = [outcome.limit.to_string(), outcome.remaining.to_string()];
            if self.openai {
                let reset = duration(outcome.reset_at.since(outcome.at));
                let [limit, remaining] = values.clone();
                for (name, value) in [("limit", limit), ("remaining", remaining), ("reset", reset)]
                {
                    headers.push((format!("x-ratelimit-{name}-{unit}"), value));
                }
            }
            if self.anthropic {
                let reset = rfc3339(outcome.reset_at);
                let [limit, remaining] = values;
                for (name, value) in [("limit", limit), ("remaining", remaining), ("reset", reset)]
                {
                    headers.push((format!("anthropic-ratelimit-{unit}-{name}"), value));
                }
            }
        }
        headers
    }
}

/// For each unit the limit with the fewest left, in the order in which units come first.
fn fewest_left<'i, 'a>(items: &'i [Item<'a>]) -> Vec<&'i Item<'a>> {
    let mut chosen: Vec<&Item<'_>> = Vec::new();
    for item in items {
        match chosen.iter_mut().find(|known| known.unit == item.unit) {
            Some(known) if item.outcome.remaining < known.outcome.remaining => *known = item,
            Some(_) => {}
            None => chosen.push(item),
        }
    }
    chosen
}

/// `250ms`, `20s`, `6m0s`, `1h0m0s`: rounded up.
fn duration(time: Micros) -> String {
    let millis = time.get().div_ceil(1_000);
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let seconds = time.ceil_seconds();
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// A point in time by RFC 3339, in whole seconds, rounded up.
fn rfc3339(at: Timestamp) -> String {
    let seconds = at.ceil_seconds();
    let (year, month, day) = crate::calendar::date_of(Timestamp::from_seconds(seconds));
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::outcome::{Outcome, Retry};

    #[test]
    fn durations_are_rounded_up() {
        for (micros, text) in [
            (0, "0ms"),
            (1, "1ms"),
            (250_000, "250ms"),
            (999_001, "1s"),
            (1_000_000, "1s"),
            (19_000_001, "20s"),
            (59_999_999, "1m0s"),
            (360_000_000, "6m0s"),
            (3_599_000_000, "59m59s"),
            (3_600_000_000, "1h0m0s"),
            (90_061_000_000, "25h1m1s"),
        ] {
            assert_eq!(duration(Micros::new(micros)), text);
        }
    }

    #[test]
    fn points_in_time_by_hand() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_794_770_061, "2026-11-15T19:14:21Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_seconds(seconds)), text);
        }
    }

    #[test]
    fn each_unit_has_the_limit_with_the_fewest_left() {
        let limit: Limit = "100/minute".parse().unwrap();
        let now = Timestamp::from_seconds(1_794_770_001);
        let outcome = |remaining| Outcome {
            allowed: true,
            limit: 100,
            remaining,
            exceeded: 0,
            retry: Retry::Now,
            reset_at: now + Micros::MINUTE,
            delay: Micros::ZERO,
            at: now,
            is_remembered: false,
        };
        let outcomes = [outcome(9), outcome(7), outcome(8)];
        let units = [None, Some("output_tokens"), Some("output_tokens")];
        let items: Vec<Item<'_>> = outcomes
            .iter()
            .zip(units)
            .map(|(outcome, unit)| Item {
                name: "r",
                limit: Some(&limit),
                unit,
                outcome,
            })
            .collect();
        let mut settings = HeaderSettings::NONE;
        assert!(settings.headers_by_unit(&items).is_empty());
        settings.anthropic = true;
        let headers = settings.headers_by_unit(&items);
        let text = |index: usize| format!("{}: {}", headers[index].0, headers[index].1);
        assert_eq!(headers.len(), 6);
        assert_eq!(text(1), "anthropic-ratelimit-requests-remaining: 9");
        assert_eq!(text(4), "anthropic-ratelimit-output-tokens-remaining: 7");
        let reset = "anthropic-ratelimit-output-tokens-reset: 2026-11-15T19:14:21Z";
        assert_eq!(text(5), reset);
    }
}
