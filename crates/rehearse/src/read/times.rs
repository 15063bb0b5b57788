//! Reads the time of a line: numbers by their size, texts by their form, or by the format that the user names.

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::{Offset, TimeZone};

use super::exact::ExactTime;

/// How times are written, if the user says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeFormat {
    /// Seconds since the epoch.
    Unix,
    /// Milliseconds.
    UnixMillis,
    /// Microseconds.
    UnixMicros,
    /// Nanoseconds.
    UnixNanos,
    /// As in RFC 3339.
    Rfc3339,
    /// As in the common log format.
    Clf,
    /// By a pattern of `strptime`.
    Pattern(String),
}

impl TimeFormat {
    /// The format with this name; a text with `%` in it is a pattern.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "unix" => Self::Unix,
            "unix-ms" => Self::UnixMillis,
            "unix-us" => Self::UnixMicros,
            "unix-ns" => Self::UnixNanos,
            "rfc3339" => Self::Rfc3339,
            "clf" => Self::Clf,
            pattern if pattern.contains('%') => Self::Pattern(pattern.to_owned()),
            _ => return None,
        })
    }
}

/// The zone with this name: `UTC`, an offset such as `+02:00`, or a name of the time zone database.
pub fn read_zone(name: &str) -> Option<TimeZone> {
    let offset = |rest: &str, sign: i32| {
        let (hours, minutes) = match rest.split_once(':') {
            Some(parts) => parts,
            None if rest.len() == 4 => rest.split_at_checked(2)?,
            None => (rest, "0"),
        };
        let is_number =
            |text: &str| matches!(text.len(), 1..=2) && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(hours) || !is_number(minutes) {
            return None;
        }
        let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
        let seconds = sign * (hours * 3_600 + minutes * 60);
        let offset = Offset::from_seconds(seconds)
            .ok()
            .filter(|_| minutes < 60)?;
        Some(TimeZone::fixed(offset))
    };
    match name.as_bytes().first()? {
        b'+' => offset(&name[1..], 1),
        b'-' => offset(&name[1..], -1),
        _ if name.eq_ignore_ascii_case("utc") || name == "Z" => Some(TimeZone::UTC),
        _ => TimeZone::get(name).ok(),
    }
}

/// The instant that a text means, such as the value of `--since`.
pub fn read_instant(text: &str, zone: &TimeZone) -> Option<tidegate::Timestamp> {
    let time = TimeReader::new(None, zone.clone()).read(text.as_bytes())?;
    time.micros().map(tidegate::Timestamp::from_micros)
}

/// Reads times. Remembers the last text, since neighbouring lines often have the same one.
#[derive(Debug)]
pub(crate) struct TimeReader {
    format: Option<TimeFormat>,
    zone: TimeZone,
    last: (Vec<u8>, Option<ExactTime>),
    /// Times in an hour that the zone has twice or not at all.
    pub(crate) ambiguous: u64,
}

impl TimeReader {
    pub(crate) fn new(format: Option<TimeFormat>, zone: TimeZone) -> Self {
        Self {
            format,
            zone,
            last: (Vec::new(), None),
            ambiguous: 0,
        }
    }

    /// The time that a text means.
    pub(crate) fn read(&mut self, text: &[u8]) -> Option<ExactTime> {
        if self.last.0 == text && !text.is_empty() {
            return self.last.1;
        }
        let ambiguous = self.ambiguous;
        let time = self.parse(text.trim_ascii());
        // An ambiguous time is counted for each line.
        if self.ambiguous == ambiguous {
            self.last.0.clear();
            self.last.0.extend_from_slice(text);
            self.last.1 = time;
        }
        time
    }

    fn parse(&mut self, text: &[u8]) -> Option<ExactTime> {
        let scale = match &self.format {
            None => return self.by_form(text),
            Some(TimeFormat::Unix) => 0,
            Some(TimeFormat::UnixMillis) => 3,
            Some(TimeFormat::UnixMicros) => 6,
            Some(TimeFormat::UnixNanos) => 9,
            Some(TimeFormat::Rfc3339) => return self.iso(text),
            Some(TimeFormat::Clf) => return self.clf(text),
            Some(TimeFormat::Pattern(pattern)) => {
                let broken = strtime::parse(pattern.as_bytes(), text).ok()?;
                if let Ok(time) = broken.to_timestamp() {
                    return Some(ExactTime::from_nanos(time.as_nanosecond()));
                }
                let local = broken.to_datetime().ok()?;
                return self.local(local);
            }
        };
        ExactTime::decimal(text, scale)
    }

    fn by_form(&mut self, text: &[u8]) -> Option<ExactTime> {
        match text {
            [b'0'..=b'9', b'0'..=b'9', b'/', ..] => self.clf(text),
            [_, _, _, _, b'-', ..] => self.iso(text),
            [b'A'..=b'Z', ..] => {
                let text = std::str::from_utf8(text).ok()?;
                let zoned = jiff::fmt::rfc2822::parse(text).ok()?;
                Some(ExactTime::from_nanos(zoned.timestamp().as_nanosecond()))
            }
            _ => by_size(text),
        }
    }

    /// `10/Oct/2026:13:55:36 +0200`, also with a fraction or without a zone.
    fn clf(&mut self, text: &[u8]) -> Option<ExactTime> {
        let [d1, d2, b'/', m1, m2, m3, b'/', rest @ ..] = text else {
            return None;
        };
        let month = MONTHS.iter().position(|month| *month == [*m1, *m2, *m3])?;
        let [
            y1,
            y2,
            y3,
            y4,
            b':',
            h1,
            h2,
            b':',
            n1,
            n2,
            b':',
            s1,
            s2,
            rest @ ..,
        ] = rest
        else {
            return None;
        };
        let year = two(*y1, *y2)? * 100 + two(*y3, *y4)?;
        let date = (year, i16::try_from(month).ok()? + 1, two(*d1, *d2)?);
        let time = (two(*h1, *h2)?, two(*n1, *n2)?, two(*s1, *s2)?);
        self.civil(date, time, rest)
    }

    /// `2026-10-10T13:55:36.25+02:00`, also with a space instead of the `T` or without a zone.
    fn iso(&mut self, text: &[u8]) -> Option<ExactTime> {
        let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, rest @ ..] = text else {
            return None;
        };
        let date = (
            two(*y1, *y2)? * 100 + two(*y3, *y4)?,
            two(*m1, *m2)?,
            two(*d1, *d2)?,
        );
        let [
            b'T' | b't' | b' ' | b'_',
            h1,
            h2,
            b':',
            n1,
            n2,
            b':',
            s1,
            s2,
            rest @ ..,
        ] = rest
        else {
            return None;
        };
        let time = (two(*h1, *h2)?, two(*n1, *n2)?, two(*s1, *s2)?);
        self.civil(date, time, rest)
    }

    /// A date and a time of day, with what follows them: a fraction, a zone.
    fn civil(
        &mut self,
        (year, month, day): (i16, i16, i16),
        (hour, minute, second): (i16, i16, i16),
        rest: &[u8],
    ) -> Option<ExactTime> {
        let digits = match rest {
            [b'.' | b',', digits @ ..] => {
                let end = digits.iter().position(|byte| !byte.is_ascii_digit());
                let end = end.unwrap_or(digits.len());
                (end > 0).then(|| &digits[..end])?
            }
            _ => &[],
        };
        let rest = match digits.len() {
            0 => rest,
            length => &rest[length + 1..],
        };
        let mut fraction = vec![b'.', b'0'];
        if !digits.is_empty() {
            fraction.truncate(1);
            fraction.extend_from_slice(digits);
        }
        let fraction = ExactTime::decimal(&fraction, 0)?;
        let small = |number: i16| i8::try_from(number).ok();
        // A leap second is the first of the next minute.
        let (second, leap) = if second == 60 { (59, 1) } else { (second, 0) };
        let local = DateTime::new(
            year,
            small(month)?,
            small(day)?,
            small(hour)?,
            small(minute)?,
            small(second)?,
            0,
        )
        .ok()?;
        let whole = match offset_of(rest.trim_ascii_start())? {
            Some(offset) => {
                let time = Offset::from_seconds(offset)
                    .ok()?
                    .to_timestamp(local)
                    .ok()?;
                ExactTime::from_nanos(time.as_nanosecond())
            }
            None => self.local(local)?,
        };
        let leap = ExactTime::from_nanos(leap * 1_000_000_000);
        // Minus a negative: the fraction is added.
        let nothing = ExactTime::from_nanos(0);
        Some(
            whole
                .minus(nothing.minus(fraction))
                .minus(nothing.minus(leap)),
        )
    }

    /// A time without a zone: of an hour that occurs twice the first, moved forward where it does not exist.
    fn local(&mut self, local: DateTime) -> Option<ExactTime> {
        let ambiguous = self.zone.to_ambiguous_timestamp(local);
        if ambiguous.is_ambiguous() {
            self.ambiguous += 1;
        }
        let time = ambiguous.compatible().ok()?;
        Some(ExactTime::from_nanos(time.as_nanosecond()))
    }
}

const MONTHS: [[u8; 3]; 12] = [
    *b"Jan", *b"Feb", *b"Mar", *b"Apr", *b"May", *b"Jun", *b"Jul", *b"Aug", *b"Sep", *b"Oct",
    *b"Nov", *b"Dec",
];

fn two(tens: u8, ones: u8) -> Option<i16> {
    let are_digits = tens.is_ascii_digit() && ones.is_ascii_digit();
    are_digits.then(|| i16::from(tens - b'0') * 10 + i16::from(ones - b'0'))
}

/// The offset in seconds that a text is; `Some(None)` if there is none.
#[expect(clippy::option_option, reason = "no offset is not a wrong one")]
fn offset_of(text: &[u8]) -> Option<Option<i32>> {
    let (sign, digits) = match text {
        [] => return Some(None),
        b"Z" | b"z" | b"UTC" | b"GMT" => return Some(Some(0)),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [h1, h2, b':', m1, m2] | [h1, h2, m1, m2] => (two(*h1, *h2)?, two(*m1, *m2)?),
        [h1, h2] => (two(*h1, *h2)?, 0),
        _ => return None,
    };
    (minutes < 60).then(|| Some(sign * (i32::from(hours) * 3_600 + i32::from(minutes) * 60)))
}

/// A number since the epoch: seconds below 10^11, then milliseconds, microseconds, nanoseconds.
fn by_size(text: &[u8]) -> Option<ExactTime> {
    let seconds = ExactTime::decimal(text, 0)?;
    let scale = match seconds.seconds() {
        ..100_000_000_000 => return Some(seconds),
        100_000_000_000..100_000_000_000_000 => 3,
        100_000_000_000_000..100_000_000_000_000_000 => 6,
        _ => 9,
    };
    ExactTime::decimal(text, scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: Option<&str>, zone: &str) -> (Option<u64>, u64) {
        let format = format.map(|name| TimeFormat::from_name(name).unwrap());
        let mut reader = TimeReader::new(format, read_zone(zone).unwrap());
        let time = reader.read(text.as_bytes()).and_then(ExactTime::micros);
        (time, reader.ambiguous)
    }

    #[test]
    fn texts_by_hand() {
        const AT: u64 = 1_794_770_000_000_000;
        #[rustfmt::skip]
        let table = [
            ("1794770000.25",                   None,               "UTC",      Some(AT + 250_000)),
            ("1794770000250",                   None,               "UTC",      Some(AT + 250_000)),
            ("1794770000250001",                None,               "UTC",      Some(AT + 250_001)),
            ("1794770000250001999",             None,               "UTC",      Some(AT + 250_001)),
            ("15/Nov/2026:19:13:20 +0000",      None,               "+02:00",   Some(AT)),
            ("15/Nov/2026:20:13:20 +0100",      None,               "UTC",      Some(AT)),
            ("15/Nov/2026:19:13:20.250",        None,               "UTC",      Some(AT + 250_000)),
            ("15/Nov/2026:21:13:20",            None,               "+02:00",   Some(AT)),
            ("15/Nov/2026:17:43:20",            None,               "-01:30",   Some(AT)),
            ("15/Nov/2026:20:13:20",            None,               "Europe/Berlin", Some(AT)),
            ("2026-11-15T19:13:20.25Z",         None,               "UTC",      Some(AT + 250_000)),
            ("2026-11-15T20:13:20+01:00",       None,               "UTC",      Some(AT)),
            ("2026-11-15 19:13:20",             None,               "UTC",      Some(AT)),
            ("2026-11-15 19:13:20,5",           None,               "UTC",      Some(AT + 500_000)),
            ("Sun, 15 Nov 2026 19:13:20 GMT",   None,               "UTC",      Some(AT)),
            ("1794770000",                      Some("unix-ms"),    "UTC",      Some(1_794_770_000_000)),
            ("2026/11/15 19h13m20",             Some("%Y/%m/%d %Hh%Mm%S"), "UTC", Some(AT)),
            ("2026/11/15 19:13:20 -0100",       Some("%Y/%m/%d %H:%M:%S %z"), "UTC", Some(AT + 3_600_000_000)),
            ("31/Feb/2026:19:13:20 +0000",      None,               "UTC",      None),
            ("15/Nov/2026:25:13:20 +0000",      None,               "UTC",      None),
            ("15/Nov/2026:19:13:20 +00",        None,               "UTC",      Some(AT)),
            ("15/Nov/2026:19:13:20 CET",        None,               "UTC",      None),
            ("2026-11-15",                      None,               "UTC",      None),
            ("yesterday",                       None,               "UTC",      None),
            ("",                                None,               "UTC",      None),
        ];
        for (text, format, zone, expected) in table {
            assert_eq!(read(text, format, zone).0, expected, "{text}");
        }
    }

    #[test]
    fn local_hours_that_occur_twice_or_never() {
        let berlin = |text| read(text, None, "Europe/Berlin");
        let utc = |text| read(text, None, "UTC").0;
        assert_eq!(
            berlin("2026-10-25T02:30:00"),
            (utc("2026-10-25T00:30:00"), 1)
        );
        assert_eq!(
            berlin("2026-03-29T02:30:00"),
            (utc("2026-03-29T01:30:00"), 1)
        );
        assert_eq!(
            berlin("2026-10-25T02:30:00+01:00"),
            (utc("2026-10-25T01:30:00"), 0)
        );
    }

    #[test]
    fn zones() {
        for zone in [
            "UTC",
            "utc",
            "+02:00",
            "-01:30",
            "Europe/Berlin",
            "America/New_York",
        ] {
            assert!(read_zone(zone).is_some(), "{zone}");
        }
        for zone in ["", "+", "+2x", "+26:00", "+01:75", "Europe/Nowhere", "CEST"] {
            assert!(read_zone(zone).is_none(), "{zone}");
        }
    }
}
