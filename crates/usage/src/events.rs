//! Splits a stream of server-sent events, fed in pieces of any size, into the data of its events.
//!
//! As the HTML standard describes it: lines end with CRLF, LF or CR; an empty line ends an event; the lines of `data`
//! are joined by LF; anything else is skipped. Nothing is kept but a few bytes.

use memchr::memchr2;

/// A part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventPart<'a> {
    /// More data of the current event.
    Data(&'a [u8]),
    /// The current event has ended; the byte at this index of the piece is the first of the next one.
    End(usize),
    /// The byte at this index belongs to the end of the last event: LF after a CR.
    LineFeed(usize),
}

/// Splits one stream.
#[derive(Debug, Clone)]
pub(crate) struct EventSplitter {
    state: LineState,
    /// Whether the last byte was a CR that ended a line.
    after_cr: bool,
    /// Whether that CR also ended an event.
    after_end: bool,
    /// Whether the event has data.
    has_data: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    /// At the start of the stream, with this much of a byte order mark read.
    Mark(usize),
    /// In the name of a field, with this much of `data` read; at 0, at the start of a line.
    Name(usize),
    /// After the colon, where one space is skipped.
    Colon,
    Data,
    /// In a line that does not matter.
    Other,
}

const MARK: &[u8] = b"\xEF\xBB\xBF";
const NAME: &[u8] = b"data";

impl EventSplitter {
    pub(crate) fn new() -> Self {
        Self {
            state: LineState::Mark(0),
            after_cr: false,
            after_end: false,
            has_data: false,
        }
    }

    /// Splits the next piece.
    pub(crate) fn feed(&mut self, piece: &[u8], mut take: impl FnMut(EventPart<'_>)) {
        let mut at = 0;
        while at < piece.len() {
            let byte = piece[at];
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                if std::mem::take(&mut self.after_end) {
                    take(EventPart::LineFeed(at));
                }
                at += 1;
                continue;
            }
            self.after_end = false;
            match self.state {
                LineState::Mark(read) if MARK.get(read) == Some(&byte) => {
                    let read = read + 1;
                    self.state = if read == MARK.len() {
                        LineState::Name(0)
                    } else {
                        LineState::Mark(read)
                    };
                    at += 1;
                }
                LineState::Mark(0) => self.state = LineState::Name(0),
                LineState::Name(0) if is_line_end(byte) => {
                    at += 1;
                    self.after_cr = byte == b'\r';
                    self.after_end = self.after_cr;
                    self.has_data = false;
                    take(EventPart::End(at));
                }
                LineState::Name(0) if piece[at..].starts_with(b"data:") => {
                    self.state = LineState::Colon;
                    self.begin_data(&mut take);
                    at += NAME.len() + 1;
                }
                LineState::Name(read) if NAME.get(read) == Some(&byte) => {
                    self.state = LineState::Name(read + 1);
                    at += 1;
                }
                LineState::Name(read) if read == NAME.len() && byte == b':' => {
                    self.state = LineState::Colon;
                    self.begin_data(&mut take);
                    at += 1;
                }
                LineState::Name(read) if read == NAME.len() && is_line_end(byte) => {
                    self.begin_data(&mut take);
                    self.state = LineState::Other;
                }
                // A part of a mark is the name of an unknown field.
                LineState::Mark(_) | LineState::Name(_) => self.state = LineState::Other,
                LineState::Colon => {
                    at += usize::from(byte == b' ');
                    self.state = LineState::Data;
                }
                LineState::Data | LineState::Other => {
                    let rest = &piece[at..];
                    let length = memchr2(b'\n', b'\r', rest);
                    let data = &rest[..length.unwrap_or(rest.len())];
                    if self.state == LineState::Data && !data.is_empty() {
                        take(EventPart::Data(data));
                    }
                    at += data.len();
                    if length.is_some() {
                        self.after_cr = piece[at] == b'\r';
                        self.state = LineState::Name(0);
                        at += 1;
                    }
                }
            }
        }
    }

    fn begin_data(&mut self, take: &mut impl FnMut(EventPart<'_>)) {
        if std::mem::replace(&mut self.has_data, true) {
            take(EventPart::Data(b"\n"));
        }
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of each event, fed in pieces of a size.
    fn events(stream: &[u8], size: usize) -> Vec<String> {
        let mut splitter = EventSplitter::new();
        let (mut all, mut data) = (Vec::new(), Vec::new());
        for piece in stream.chunks(size) {
            splitter.feed(piece, |part| match part {
                EventPart::Data(more) => data.extend_from_slice(more),
                EventPart::End(_) => {
                    all.push(String::from_utf8(std::mem::take(&mut data)).unwrap());
                }
                EventPart::LineFeed(_) => {}
            });
        }
        all
    }

    #[test]
    fn streams_are_split_as_the_standard_says() {
        let cases: [(&str, &[&str]); 11] = [
            ("data: a\n\ndata: b\n\n", &["a", "b"]),
            ("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
            ("data: a\r\rdata: b\r\r", &["a", "b"]),
            ("data: a\ndata: b\n\n", &["a\nb"]),
            ("data:a\ndata:  b\n\n", &["a\n b"]),
            ("data\ndata:\ndata: x\n\n", &["\n\nx"]),
            (": comment\n\nevent: e\ndata: a\nid: 1\n\n", &["", "a"]),
            ("dat: a\ndatas: b\nData: c\ndata : d\n\n", &[""]),
            ("\u{feff}data: a\n\n", &["a"]),
            ("\u{feff}\u{feff}data: a\n\n", &[""]),
            ("data: ä😀\n\ndata: unfinished", &["ä😀"]),
        ];
        for (stream, expected) in cases {
            for size in 1..=stream.len() {
                assert_eq!(
                    events(stream.as_bytes(), size),
                    expected,
                    "{stream:?} {size}"
                );
            }
        }
    }
}
