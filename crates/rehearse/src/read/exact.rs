//! Times and durations as exact decimals: what a log writes is never rounded through floating point.

use tidegate::Timestamp;

/// Attoseconds in a second: eighteen decimals are kept.
const SECOND: i128 = 1_000_000_000_000_000_000;
const DECIMALS: usize = 18;

/// A time since the epoch or a duration, in attoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExactTime(i128);

impl ExactTime {
    pub(crate) fn from_nanos(nanos: i128) -> Self {
        Self(nanos.saturating_mul(SECOND / 1_000_000_000))
    }

    /// The decimal number in `text`, in units of `10^-scale` seconds: 0 for seconds, 3 for milliseconds. None if it is
    /// not a number, or too large for a time.
    pub(crate) fn decimal(text: &[u8], scale: usize) -> Option<Self> {
        let (text, is_negative) = match text {
            [b'-', rest @ ..] => (rest, true),
            [b'+', rest @ ..] => (rest, false),
            text => (text, false),
        };
        let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let (whole, fraction) = match mantissa.iter().position(|byte| *byte == b'.') {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &[][..]),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let scale = i32::try_from(scale).ok()?;
        let shift = i32::try_from(DECIMALS).ok()? - scale + exponent;
        let mut value: i128 = 0;
        // The place of each digit, as a power of ten in attoseconds; what is below one is cut.
        let mut place = i32::try_from(whole.len()).ok()? + shift;
        for digit in whole.iter().chain(fraction) {
            if !digit.is_ascii_digit() {
                return None;
            }
            place -= 1;
            if *digit == b'0' || place < 0 {
                continue;
            }
            let unit = 10_i128.checked_pow(u32::try_from(place).ok()?)?;
            value = value.checked_add(unit.checked_mul(i128::from(digit - b'0'))?)?;
        }
        Some(Self(if is_negative { -value } else { value }))
    }

    pub(crate) fn minus(self, span: Self) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// Whole seconds, cut.
    pub(crate) fn seconds(self) -> i128 {
        self.0.div_euclid(SECOND)
    }

    /// Whole microseconds, cut. None before the epoch or later than limits can count.
    pub(crate) fn micros(self) -> Option<u64> {
        let micros = u64::try_from(self.0.div_euclid(SECOND / 1_000_000)).ok()?;
        (micros <= Timestamp::MAX.as_micros()).then_some(micros)
    }
}

fn exponent(text: &[u8]) -> Option<i32> {
    let exponent: i32 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (-40..=40).contains(&exponent).then_some(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str, scale: usize) -> Option<u64> {
        ExactTime::decimal(text.as_bytes(), scale)?.micros()
    }

    #[test]
    fn decimals_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("1794770000",              0, Some(1_794_770_000_000_000)),
            ("1794770000.25",           0, Some(1_794_770_000_250_000)),
            ("1794770000.2500019",      0, Some(1_794_770_000_250_001)),
            ("1794770000250",           3, Some(1_794_770_000_250_000)),
            ("1794770000250001999",     9, Some(1_794_770_000_250_001)),
            ("1.79477e9",               0, Some(1_794_770_000_000_000)),
            ("2.5e-05",                 0, Some(25)),
            ("0.000001",                0, Some(1)),
            (".5",                      0, Some(500_000)),
            ("5.",                      0, Some(5_000_000)),
            ("-1",                      0, None),
            ("",                        0, None),
            (".",                       0, None),
            ("1.2.3",                   0, None),
            ("12x",                     0, None),
            ("1e99",                    0, None),
            ("99999999999999999999999", 0, None),
        ];
        for (text, scale, expected) in table {
            assert_eq!(micros(text, scale), expected, "{text}");
        }
    }

    #[test]
    fn a_duration_is_subtracted_before_anything_is_cut() {
        let end = ExactTime::decimal(b"10.0000005", 0).unwrap();
        let span = ExactTime::decimal(b"0.0000006", 0).unwrap();
        assert_eq!(end.minus(span).micros(), Some(9_999_999));
    }
}
