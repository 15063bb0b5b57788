//! Values of variables as programs in Go read them: `strconv.ParseBool`, `time.ParseDuration`, and the maps and lists
//! of the envconfig library.

use std::time::Duration;

/// A boolean.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!(
            "`{text}` is not a boolean; write `true` or `false`"
        )),
    }
}

/// A duration: `150us`, `1.5h`, `1h30m`, `0`. One that is negative is zero.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (unsigned, is_negative) = match text.strip_prefix('-') {
        Some(unsigned) => (unsigned, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    let nanoseconds = nanoseconds(unsigned).ok_or_else(|| {
        format!("`{text}` is not a duration; write for example `150us`, `10s` or `1h30m`")
    })?;
    let nanoseconds = if is_negative { 0 } else { nanoseconds };
    Ok(Duration::from_nanos(nanoseconds))
}

/// The nanoseconds of a duration of Go without its sign. Like Go, fractions of a nanosecond are cut.
fn nanoseconds(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (mut rest, mut sum) = (text, 0_u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.');
        let (number, after) = rest.split_at(number.count());
        let unit = after
            .bytes()
            .take_while(|byte| !byte.is_ascii_digit() && *byte != b'.');
        let (unit, after) = after.split_at(unit.count());
        sum = sum.checked_add(part(number, unit)?)?;
        rest = after;
    }
    i64::try_from(sum).ok()?;
    Some(sum)
}

/// The nanoseconds of a number with its unit.
fn part(number: &str, unit: &str) -> Option<u64> {
    let unit: u64 = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<u64>().ok()?
    };
    let mut nanoseconds = whole.checked_mul(unit)?;
    let mut scale = unit;
    for digit in fraction.bytes() {
        scale /= 10;
        // Exact for all digits that count: units are 10 to some power, or 6 times that, or 36 times.
        nanoseconds = nanoseconds.checked_add(u64::from(digit - b'0') * scale)?;
    }
    Some(nanoseconds)
}

/// A whole number, such as a size, in the base that its prefix says.
pub(super) fn whole(text: &str) -> Result<i64, String> {
    let number = based(text).and_then(|number| i64::try_from(number).ok());
    number.ok_or_else(|| format!("`{text}` is not a whole number"))
}

/// `strconv.ParseInt` with the base 0: `0x1f`, `0o17`, `017`, `0b11`, and `_` between digits, also after a prefix.
fn based(text: &str) -> Option<i128> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (-1, unsigned),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (base, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, unsigned.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, unsigned.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, unsigned.get(2..)?),
        [b'0', _, ..] => (8, unsigned.get(1..)?),
        _ => (10, unsigned),
    };
    // After a prefix one `_` may come first.
    let digits = match digits.strip_prefix('_') {
        Some(rest) if digits.len() < unsigned.len() => rest,
        _ => digits,
    };
    let mut number: i128 = 0;
    for part in digits.split('_') {
        if part.is_empty() {
            return None;
        }
        for digit in part.chars() {
            let digit = digit.to_digit(base)?;
            let scaled = number.checked_mul(i128::from(base))?;
            number = scaled.checked_add(i128::from(digit))?;
        }
    }
    Some(sign * number)
}

/// A port.
pub(super) fn port(text: &str) -> Result<u16, String> {
    let port = whole(text).ok().and_then(|port| u16::try_from(port).ok());
    port.ok_or_else(|| format!("`{text}` is not a port; write a number from 0 to 65535"))
}

/// A number that may have a fraction.
pub(super) fn number(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("`{text}` is not a number; write for example `0.8`"))
}

/// A map `k:v,k2:v2`. Of a key that is there twice, the last value counts. Empty is no entry.
pub(super) fn map(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut entries: Vec<(String, String)> = Vec::new();
    if text.trim().is_empty() {
        return Ok(entries);
    }
    for pair in text.split(',') {
        let entry = pair.split_once(':');
        let Some((key, value)) = entry.filter(|(_, value)| !value.contains(':')) else {
            return Err(format!(
                "`{pair}` is not an entry with one colon; write `key:value,key2:value2`"
            ));
        };
        entries.retain(|(known, _)| known != key);
        entries.push((key.to_owned(), value.to_owned()));
    }
    Ok(entries)
}

/// A list `a,b,c`. Empty is no item.
pub(super) fn list(text: &str) -> Vec<String> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    text.split(',').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_the_words_of_go() {
        for word in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(boolean(word), Ok(true), "{word}");
        }
        for word in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(boolean(word), Ok(false), "{word}");
        }
        for word in ["", "yes", "no", "on", "tRUE", " true", "2"] {
            assert!(boolean(word).is_err(), "{word}");
        }
    }

    #[test]
    fn durations_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("0",           Some(0)),
            ("+0",          Some(0)),
            ("0s",          Some(0)),
            ("5ns",         Some(5)),
            ("150us",       Some(150_000)),
            ("150\u{b5}s",  Some(150_000)),
            ("150\u{3bc}s", Some(150_000)),
            ("10ms",        Some(10_000_000)),
            ("+3s",         Some(3_000_000_000)),
            ("1.5h",        Some(5_400_000_000_000)),
            ("1h30m",       Some(5_400_000_000_000)),
            ("1h30m5.25s",  Some(5_405_250_000_000)),
            (".5s",         Some(500_000_000)),
            ("1.s",         Some(1_000_000_000)),
            ("1s1s",        Some(2_000_000_000)),
            ("0.9ns",       Some(0)),
            ("2562047h",    Some(9_223_369_200_000_000_000)),
            ("2562048h",    None),
            ("",            None),
            ("+",           None),
            ("1",           None),
            ("s",           None),
            (".s",          None),
            ("1.2.3s",      None),
            ("1d",          None),
            ("-1s",         Some(0)),
            ("-0",          Some(0)),
            ("-",           None),
            ("--1s",        None),
            ("-2562048h",   None),
            ("1 s",         None),
            ("1s ",         None),
            ("\u{663}s",    None),
        ];
        for (text, expected) in table {
            let read = duration(text).ok();
            assert_eq!(read, expected.map(Duration::from_nanos), "{text}");
        }
    }

    #[test]
    fn whole_numbers_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("0",                    Some(0)),
            ("8080",                 Some(8_080)),
            ("+5",                   Some(5)),
            ("-5",                   Some(-5)),
            ("0x1F90",               Some(8_080)),
            ("0X1f90",               Some(8_080)),
            ("0o17",                 Some(15)),
            ("017",                  Some(15)),
            ("0_17",                 Some(15)),
            ("0b101",                Some(5)),
            ("-0x10",                Some(-16)),
            ("1_000_000",            Some(1_000_000)),
            ("0x_10",                Some(16)),
            ("9223372036854775807",  Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808",  None),
            ("99999999999999999999999999999999999999999", None),
            ("",                     None),
            ("-",                    None),
            ("08",                   None),
            ("0x",                   None),
            ("_1",                   None),
            ("1_",                   None),
            ("1__0",                 None),
            ("0x__1",                None),
            ("1.0",                  None),
            ("1e3",                  None),
            (" 1",                   None),
            ("0\u{663}",             None),
        ];
        for (text, expected) in table {
            assert_eq!(whole(text).ok(), expected, "{text}");
        }
        assert_eq!(port("0x1F90"), Ok(8_080));
        assert!(port("65536").is_err() && port("-1").is_err());
    }

    #[test]
    fn maps_and_lists_are_split_at_commas_and_a_colon() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(map(""), Ok(vec![]));
        assert_eq!(map("a:b,c:d"), Ok(vec![pair("a", "b"), pair("c", "d")]));
        assert_eq!(map("a:b,a:c"), Ok(vec![pair("a", "c")]));
        assert_eq!(map("a:"), Ok(vec![pair("a", "")]));
        for refused in ["a", "a:b,", "a:b:c"] {
            assert!(map(refused).is_err(), "{refused}");
        }
        assert_eq!(list(""), Vec::<String>::new());
        assert_eq!(list("a,b"), ["a", "b"]);
    }
}
