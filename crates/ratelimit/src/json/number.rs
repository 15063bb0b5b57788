//! Whole numbers as the JSON form of protocol buffers has them: `3`, `"3"`, `3.0`, `30e-1`.

/// The whole number that a JSON number says, if it says one from 0 to `most`.
pub(super) fn whole(text: &str, most: u64) -> Option<u64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (before, after) = match mantissa.split_once('.') {
        Some((_, "")) => return None,
        Some((before, after)) => (before, after),
        None => (mantissa, ""),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zero_in_front = before.len() > 1 && before.starts_with('0');
    if before.is_empty() || has_zero_in_front || !is_digits(before) || !is_digits(after) {
        return None;
    }
    let all = format!("{before}{after}");
    let significant = all.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    if is_negative {
        return None;
    }
    let shift = i64::from(exponent) - i64::try_from(after.len()).ok()?;
    let value = if shift >= 0 {
        let factor = 10_u64.checked_pow(u32::try_from(shift).ok()?)?;
        significant.parse::<u64>().ok()?.checked_mul(factor)?
    } else {
        let cut = usize::try_from(-shift).ok()?;
        let kept = significant.len().checked_sub(cut)?;
        let (kept, fraction) = significant.split_at(kept);
        if fraction.bytes().any(|byte| byte != b'0') {
            return None;
        }
        kept.parse().ok()?
    };
    (value <= most).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_hand() {
        let short = u64::from(u32::MAX);
        #[rustfmt::skip]
        let table = [
            ("0",                       short,      Some(0)),
            ("-0",                      short,      Some(0)),
            ("7",                       short,      Some(7)),
            ("4294967295",              short,      Some(short)),
            ("4294967296",              short,      None),
            ("18446744073709551615",    u64::MAX,   Some(u64::MAX)),
            ("18446744073709551616",    u64::MAX,   None),
            ("3.0",                     short,      Some(3)),
            ("30e-1",                   short,      Some(3)),
            ("1.5e1",                   short,      Some(15)),
            ("1E+2",                    short,      Some(100)),
            ("0.0",                     short,      Some(0)),
            ("0e99",                    short,      Some(0)),
            ("3.5",                     short,      None),
            ("1e-1",                    short,      None),
            ("1e99",                    u64::MAX,   None),
            ("1e9999999999",            u64::MAX,   None),
            ("-1",                      short,      None),
            ("01",                      short,      None),
            ("1.",                      short,      None),
            (".5",                      short,      None),
            ("+1",                      short,      None),
            (" 1",                      short,      None),
            ("",                        short,      None),
            ("e1",                      short,      None),
            ("x",                       short,      None),
        ];
        for (text, most, expected) in table {
            assert_eq!(whole(text, most), expected, "{text}");
        }
    }
}
