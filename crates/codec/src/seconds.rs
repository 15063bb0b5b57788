//! Times as decimal seconds, exact to the microsecond.

use tidegate::Micros;

/// Microseconds as seconds, with as many decimals as needed.
pub fn write_seconds(out: &mut Vec<u8>, micros: u64) {
    let second = Micros::SECOND.get();
    let (whole, fraction) = (micros / second, micros % second);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(whole).as_bytes());
    if fraction > 0 {
        // A second more, so that zeros after the point are written too; its digit becomes the point.
        let digits = digits.format(second + fraction).trim_end_matches('0');
        out.push(b'.');
        out.extend_from_slice(digits.as_bytes().get(1..).unwrap_or_default());
    }
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
            (1_000_010, "1.00001"),
            (u64::MAX, "18446744073709.551615"),
            (10_000_000, "10"),
            (1_794_770_060_250_000, "1794770060.25"),
        ] {
            let mut out = Vec::new();
            write_seconds(&mut out, micros);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
