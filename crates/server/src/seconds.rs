//! Times as decimal seconds and as text, exact to the microsecond.

use std::io::Write as _;

use tidegate::{Micros, Timestamp};

/// Microseconds as seconds, with as many decimals as needed.
pub(crate) fn write_seconds(out: &mut Vec<u8>, micros: u64) {
    let second = Micros::SECOND.get();
    let (whole, fraction) = (micros / second, micros % second);
    let _ = write!(out, "{whole}");
    if fraction > 0 {
        let _ = write!(out, ".{fraction:06}");
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Microseconds as seconds, for JSON and metrics.
#[expect(
    clippy::cast_precision_loss,
    reason = "times are below 2^53 microseconds"
)]
pub(crate) fn decimal_seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// A time as text, such as `2026-11-16T01:26:31.385863Z`.
pub(crate) fn date_time(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| String::new(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_by_hand() {
        for (micros, text) in [
            (0, "0"),
            (1, "0.000001"),
            (600_000, "0.6"),
            (1_000_000, "1"),
            (10_000_000, "10"),
            (1_794_770_060_250_000, "1794770060.25"),
        ] {
            let mut out = Vec::new();
            write_seconds(&mut out, micros);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
