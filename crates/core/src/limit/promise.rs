//! [`WorstCase`](super::WorstCase) in words. Every page and command that describes a limit uses these words.

use super::{Algorithm, Anchor, Limit, Window};
use crate::algorithm::Form;
use crate::time::Micros;

/// The units in which spans are said, the largest first.
const UNITS: [(Micros, &str, &str); 5] = [
    (Micros::DAY, "d", "day"),
    (Micros::HOUR, "h", "hour"),
    (Micros::MINUTE, "min", "minute"),
    (Micros::SECOND, "s", "second"),
    (Micros::MILLISECOND, "ms", "millisecond"),
];

impl Limit {
    /// The most that it can admit, in words.
    ///
    /// ```
    /// use tidegate_core::Limit;
    ///
    /// let bucket: Limit = "3/minute".parse()?;
    /// assert_eq!(bucket.promise(), "at most 5 in any minute: 3 at once, then one every 20 s");
    /// let quota: Limit = "10000/day".parse()?;
    /// assert_eq!(quota.promise(), "10,000 in each day (UTC); at most 20,000 in any 24 hours");
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn promise(&self) -> String {
        let worst = self.worst_case();
        let at_once = grouped(worst.instant);
        let (Some(window), Some(most)) = (self.window(), worst.window) else {
            return format!("at most {at_once} at the same time");
        };
        let most = format!("at most {} in any", grouped(most));
        match (&self.form, self.algorithm) {
            (Form::Bucket(bucket), Algorithm::LeakyBucket { shape: true }) => {
                let pace = pace(self.rate.count, bucket.window());
                format!("{most} {}: {pace}", interval(window))
            }
            (Form::Bucket(bucket), _) => {
                let pace = pace(self.rate.count, bucket.window());
                format!(
                    "{most} {}: {at_once} at once, then {pace}",
                    interval(window)
                )
            }
            (_, Algorithm::FixedWindow { anchor }) => {
                let (each, any) = (period(window), length(window));
                match anchor {
                    Anchor::Clock | Anchor::Epoch => {
                        format!("{at_once} in each {each} (UTC); {most} {any}")
                    }
                    Anchor::FirstRequest => {
                        format!("{at_once} in {any} from the first request; {most} {any}")
                    }
                }
            }
            (
                _,
                Algorithm::SlidingWindowLog | Algorithm::SlidingWindowSlots { strict: true, .. },
            ) => format!("{most} {}", interval(window)),
            _ => format!("{most} {}: {at_once} at once", interval(window)),
        }
    }
}

/// An interval as long as a window: `minute`, `2 hours`, `24 hours`.
fn interval(window: Window) -> String {
    match window {
        Window::Span(span) if span < Micros::DAY => period(window),
        _ => length(window),
    }
}

/// A window: `minute`, `2 hours`, `day`, `month`.
fn period(window: Window) -> String {
    match window {
        Window::Span(Micros::WEEK) => "week".to_owned(),
        Window::Span(span) => match whole_units(span) {
            (1, name) => name.to_owned(),
            (count, name) => format!("{} {name}s", grouped(count)),
        },
        calendar => calendar.to_string(),
    }
}

/// The length of a window as `60 seconds` or `24 hours`, so that it is not mistaken for a window of the clock. For a
/// month or a year, the shortest length.
fn length(window: Window) -> String {
    match window {
        Window::Span(Micros::SECOND) => "1,000 milliseconds".to_owned(),
        Window::Span(Micros::MINUTE) => "60 seconds".to_owned(),
        Window::Span(Micros::HOUR) => "60 minutes".to_owned(),
        Window::Span(Micros::DAY) => "24 hours".to_owned(),
        Window::Span(Micros::WEEK) => "7 days".to_owned(),
        Window::Month => "28 days".to_owned(),
        Window::Year => "365 days".to_owned(),
        other @ Window::Span(_) => period(other),
    }
}

/// A span in the largest unit that divides it.
fn whole_units(span: Micros) -> (u64, &'static str) {
    let divides = |unit: Micros| span.get().is_multiple_of(unit.get());
    let unit = UNITS.iter().find(|(unit, ..)| divides(*unit));
    unit.map_or((span.get(), "microsecond"), |(unit, _, name)| {
        (span.get() / unit.get(), *name)
    })
}

/// How requests follow each other at a rate: `one every 20 s`, or `5,000 a second` where that is too short to be said.
fn pace(count: u64, window: Micros) -> String {
    let (count, window) = (u128::from(count.max(1)), u128::from(window.get()));
    // The largest unit of which there is at least one between two requests.
    let unit = UNITS
        .iter()
        .find(|(unit, ..)| window >= count * u128::from(unit.get()));
    let Some((unit, short, name)) = unit else {
        let second = count * u128::from(Micros::SECOND.get());
        let per_second = u64::try_from(second / window).unwrap_or(u64::MAX);
        let about = if second.is_multiple_of(window) {
            ""
        } else {
            "about "
        };
        return format!("{about}{} a second", grouped(per_second));
    };
    // A smaller unit is exact where the larger one would have many decimals: 86.4 s, not 1.44 min.
    let tenths = |unit: Micros| (window * 10).is_multiple_of(count * u128::from(unit.get()));
    let exact = UNITS
        .iter()
        .filter(|(smaller, ..)| smaller <= unit && tenths(*smaller))
        .find(|(smaller, ..)| window < 1_000 * count * u128::from(smaller.get()));
    if window == count * u128::from(unit.get()) {
        return format!("one every {name}");
    }
    let (unit, short, decimals) = match exact {
        Some((unit, short, _)) => (unit, *short, 1),
        None => (unit, *short, 2),
    };
    let (scale, divisor) = (10_u128.pow(decimals), count * u128::from(unit.get()));
    let is_exact = (window * scale).is_multiple_of(divisor);
    let about = if is_exact { "" } else { "about " };
    let scaled = (window * scale * 2 / divisor).div_ceil(2);
    let (whole, rest) = (scaled / scale, scaled % scale);
    let digits = decimals as usize;
    let text = format!("{whole}.{rest:0digits$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{about}one every {text} {short}")
}

/// A number with its thousands set apart: `10,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Anchor, Limit, Micros};

    #[test]
    fn promises_by_hand() {
        let bucket = Algorithm::TOKEN_BUCKET;
        let fixed = Algorithm::FIXED_WINDOW;
        let first = Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        };
        let strict = Algorithm::SlidingWindowSlots {
            slots: None,
            strict: true,
        };
        let meter = Algorithm::LeakyBucket { shape: false };
        let patient = Algorithm::TokenBucket {
            max_delay: Micros::SECOND,
        };
        #[rustfmt::skip]
        let table = [
            ("3/minute",             bucket,  "at most 5 in any minute: 3 at once, then one every 20 s"),
            ("1/minute",             bucket,  "at most 1 in any minute: 1 at once, then one every minute"),
            ("100/minute burst 20",  bucket,  "at most 119 in any minute: 20 at once, then one every 600 ms"),
            ("100/minute burst 20",  patient, "at most 119 in any minute: 20 at once, then one every 600 ms"),
            ("100/second",           meter,   "at most 199 in any second: 100 at once, then one every 10 ms"),
            ("7/minute",             bucket,  "at most 13 in any minute: 7 at once, then about one every 8.57 s"),
            ("40/hour",              bucket,  "at most 79 in any hour: 40 at once, then one every 1.5 min"),
            ("5000/second",          bucket,  "at most 9,999 in any second: 5,000 at once, then 5,000 a second"),
            ("5000/3s",              bucket,  "at most 9,999 in any 3 seconds: 5,000 at once, then about 1,666 a second"),
            ("2/250ms",              bucket,  "at most 3 in any 250 milliseconds: 2 at once, then one every 125 ms"),
            ("10 per 2 hours",       bucket,  "at most 19 in any 2 hours: 10 at once, then one every 12 min"),
            ("1000/day burst 50",    bucket,  "at most 1,049 in any 24 hours: 50 at once, then one every 86.4 s"),
            ("10000/day burst 50",   bucket,  "at most 10,049 in any 24 hours: 50 at once, then one every 8.64 s"),
            ("1/366d burst 1",       bucket,  "at most 1 in any 366 days: 1 at once, then one every 366 d"),
            ("60/minute burst 3",    Algorithm::LEAKY_BUCKET, "at most 60 in any minute: one every second"),
            ("10000/day",            fixed,   "10,000 in each day (UTC); at most 20,000 in any 24 hours"),
            ("100/minute",           fixed,   "100 in each minute (UTC); at most 200 in any 60 seconds"),
            ("100/week",             fixed,   "100 in each week (UTC); at most 200 in any 7 days"),
            ("100/2d",               fixed,   "100 in each 2 days (UTC); at most 200 in any 2 days"),
            ("1000/month",           fixed,   "1,000 in each month (UTC); at most 2,000 in any 28 days"),
            ("1/year",               fixed,   "1 in each year (UTC); at most 2 in any 365 days"),
            ("100/hour",             first,   "100 in 60 minutes from the first request; at most 200 in any 60 minutes"),
            ("100/hour",             Algorithm::SlidingWindowCounter, "at most 200 in any hour: 100 at once"),
            ("100/hour",             Algorithm::SLIDING_WINDOW_SLOTS, "at most 200 in any hour: 100 at once"),
            ("100/hour",             strict,  "at most 100 in any hour"),
            ("100/hour",             Algorithm::SlidingWindowLog, "at most 100 in any hour"),
            ("1000000000/ms",        bucket,  "at most 1,999,999,999 in any millisecond: 1,000,000,000 at once, then 1,000,000,000,000 a second"),
            ("10",                   Algorithm::CONCURRENCY, "at most 10 at the same time"),
        ];
        for (text, algorithm, words) in table {
            let limit = Limit::new(text.parse().unwrap(), algorithm).unwrap();
            assert_eq!(limit.promise(), words, "{text}");
        }
    }
}
