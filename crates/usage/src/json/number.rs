//! Whole numbers as JSON writes them.

/// The largest number that is read: what a double holds exactly, as everywhere in Tidegate.
pub(crate) const MAX_NUMBER: u64 = (1 << 53) - 1;

/// A number of JSON, as a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WholeNumber {
    /// From 0 to [`MAX_NUMBER`].
    Value(u64),
    /// Whole, and above [`MAX_NUMBER`].
    TooLarge,
    /// Negative, with a fraction, or not a number of JSON.
    Invalid,
}

impl WholeNumber {
    /// Reads a number as written. `25.0` and `2.5e1` are 25.
    pub(super) fn read(text: &[u8]) -> Self {
        if let Some(count) = short_count(text) {
            return Self::Value(count);
        }
        Self::try_read(text).unwrap_or(Self::Invalid)
    }

    fn try_read(text: &[u8]) -> Option<Self> {
        let (digits, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let (whole, fraction) = match digits.iter().position(|&byte| byte == b'.') {
            Some(at) => (&digits[..at], &digits[at + 1..]),
            None => (digits, &[][..]),
        };
        let is_written_well = !whole.is_empty()
            && (whole.len() == 1 || whole[0] != b'0')
            && (fraction.is_empty() == (whole.len() == digits.len()));
        let mut all = whole.iter().chain(fraction);
        if !is_written_well || !all.all(u8::is_ascii_digit) {
            return None;
        }
        Some(scaled(whole, fraction, exponent))
    }
}

/// The value of a number of a few digits and nothing else, which most counts are.
fn short_count(text: &[u8]) -> Option<u64> {
    let is_short = matches!(text, [b'0'] | [b'1'..=b'9', ..]) && text.len() <= 15;
    is_short.then_some(())?;
    text.iter().try_fold(0, |sum, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        Some(sum * 10 + u64::from(digit))
    })
}

/// The exponent, clamped: beyond a thousand the number is 0, too large or not whole anyway.
fn exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits.iter().fold(0_i64, |sum, digit| {
        (sum * 10 + i64::from(digit - b'0')).min(1_000)
    });
    Some(if is_negative { -size } else { size })
}

fn scaled(whole: &[u8], fraction: &[u8], exponent: i64) -> WholeNumber {
    let digits: Vec<u8> = whole.iter().chain(fraction).copied().collect();
    let Some(last) = digits.iter().rposition(|&digit| digit != b'0') else {
        return WholeNumber::Value(0);
    };
    let zeros = digits.len() - 1 - last;
    let shift = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 4);
    let power = exponent - shift(fraction.len()) + shift(zeros);
    let Ok(power) = u32::try_from(power) else {
        return WholeNumber::Invalid;
    };
    let mut value: u64 = 0;
    for digit in &digits[..=last] {
        let next = value.checked_mul(10);
        let Some(next) = next.and_then(|next| next.checked_add(u64::from(digit - b'0'))) else {
            return WholeNumber::TooLarge;
        };
        value = next;
    }
    let value = 10_u64
        .checked_pow(power)
        .and_then(|power| value.checked_mul(power));
    match value {
        Some(value) if value <= MAX_NUMBER => WholeNumber::Value(value),
        _ => WholeNumber::TooLarge,
    }
}

#[cfg(test)]
mod tests {
    use super::WholeNumber::{self, Invalid, TooLarge, Value};

    #[test]
    fn numbers_are_read_as_written() {
        for (text, number) in [
            ("0", Value(0)),
            ("7", Value(7)),
            ("663", Value(663)),
            ("9007199254740991", Value(9_007_199_254_740_991)),
            ("9007199254740992", TooLarge),
            ("99999999999999999999999999", TooLarge),
            ("1e3", Value(1_000)),
            ("1E+3", Value(1_000)),
            ("25.0", Value(25)),
            ("2.5e1", Value(25)),
            ("2500e-2", Value(25)),
            ("0.0", Value(0)),
            ("0e999999999999999999999", Value(0)),
            ("1e400", TooLarge),
            ("1e999999999999999999999", TooLarge),
            ("1e-400", Invalid),
            ("1.5", Invalid),
            ("2.55e1", Invalid),
            ("9007199254740990.6", Invalid),
            ("-1", Invalid),
            ("-0", Invalid),
            ("007", Invalid),
            ("1.", Invalid),
            (".5", Invalid),
            ("1e", Invalid),
            ("1e+", Invalid),
            ("+1", Invalid),
            ("1-2", Invalid),
            ("", Invalid),
        ] {
            assert_eq!(WholeNumber::read(text.as_bytes()), number, "{text}");
        }
    }
}
