//! Instants and durations as text, independent of locale and time zone.

use serde_json::Value;
pub(crate) use tidegate::rules::write_time as rfc3339;
use tidegate::{Micros, Timestamp};

/// Microseconds in a second.
const SECOND: f64 = 1e6;

/// The instant of a JSON number of Unix seconds.
pub(crate) fn instant(seconds: &Value) -> Option<Timestamp> {
    micros(seconds).map(Timestamp::from_micros)
}

/// The duration of a JSON number of seconds.
pub(crate) fn span(seconds: &Value) -> Option<Micros> {
    micros(seconds).map(Micros::new)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float saturates, and so do these types"
)]
fn micros(seconds: &Value) -> Option<u64> {
    let seconds = seconds.as_f64()?;
    // Rounded to the nearest microsecond: a double is more precise than that here.
    Some((seconds * SECOND).round() as u64)
}

/// A duration without its decimals, where they say nothing to people.
pub(crate) fn whole_seconds(span: Micros) -> Micros {
    Micros::from_seconds(span.get() / Micros::SECOND.get())
}

/// A duration in at most two units: `0.6s`, `1m 30s`, `2d 5h`, rounded up.
pub(crate) fn length(span: Micros) -> String {
    if span < Micros::MINUTE {
        let millis = span.get().div_ceil(1_000);
        let text = format!("{}.{:03}", millis / 1_000, millis % 1_000);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return format!("{text}s");
    }
    let units = [
        (Micros::DAY, "d", Micros::HOUR, "h"),
        (Micros::HOUR, "h", Micros::MINUTE, "m"),
        (Micros::MINUTE, "m", Micros::SECOND, "s"),
    ];
    for (large, large_name, small, small_name) in units {
        // Rounded up first, so that a remainder never becomes a whole large unit.
        let smalls = span.get().div_ceil(small.get());
        let per_large = large.get() / small.get();
        if smalls < per_large {
            continue;
        }
        let (count, rest) = (smalls / per_large, smalls % per_large);
        return match rest {
            0 => format!("{count}{large_name}"),
            _ => format!("{count}{large_name} {rest}{small_name}"),
        };
    }
    span.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spans_by_hand() {
        let table = [
            (0, "0s"),
            (1, "0.001s"),
            (600_000, "0.6s"),
            (59_999_999, "60s"),
            (60_000_000, "1m"),
            (90_500_000, "1m 31s"),
            (3_600_000_000, "1h"),
            (3_599_999_999, "1h"),
            (7_500_000_000, "2h 5m"),
            (190_000_000_000, "2d 5h"),
        ];
        for (micros, text) in table {
            assert_eq!(length(Micros::new(micros)), text, "{micros}");
        }
    }

    #[test]
    fn instants_are_exact_to_the_microsecond() {
        let at = instant(&json!(1_794_770_060.250_001)).unwrap();
        assert_eq!(at.as_micros(), 1_794_770_060_250_001);
        assert_eq!(rfc3339(at), "2026-11-15T19:14:20.250001Z");
        assert_eq!(instant(&json!(null)), None);
        assert_eq!(span(&json!(-1)), Some(Micros::ZERO));
    }
}
