//! The strict framing reader: inspects the bytes of an HTTP/1 client for requests that two parsers can read in two
//! ways, such as a body with two lengths or lines that end in a bare newline.
//!
//! hyper accepts some of them. A forwarded request must have none: the next server could see another request where
//! this one sees a body. All other errors are left to hyper.
//! Why it exists: `docs/decisions/003-strict-framing-reader.md`.

use std::io;

/// The longest line that is buffered; hyper refuses heads long before.
const LONGEST_LINE: usize = 1 << 20;

/// The position in the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramingState {
    /// In the lines of a head, or before one.
    Head,
    /// In a body, this many bytes before its end.
    Body(u64),
    /// In a chunk size line.
    Size,
    /// In a chunk, this many bytes before its end, the line end included.
    Chunk(u64),
    /// After the last chunk.
    Trailers,
    /// Nothing more is passed on.
    Refused,
}

/// The framing headers of the head so far.
#[derive(Debug, Default)]
struct Head {
    has_begun: bool,
    length: Option<u64>,
    is_chunked: bool,
}

/// Inspects the bytes of one connection.
#[derive(Debug)]
pub(crate) struct FramingReader {
    state: FramingState,
    head: Head,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
}

impl FramingReader {
    pub(crate) fn new() -> Self {
        Self {
            state: FramingState::Head,
            head: Head::default(),
            line: Vec::new(),
        }
    }

    /// Inspects bytes before hyper parses them. Returns how many of them may be parsed; after an ambiguous head
    /// nothing more may be. A body whose framing is invalid is an error.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                FramingState::Body(left) => {
                    at += self.pass(left, bytes.len() - at, FramingState::Body);
                }
                FramingState::Chunk(left) => {
                    at += self.pass(left, bytes.len() - at, FramingState::Chunk);
                }
                FramingState::Refused => return Ok(at),
                FramingState::Head | FramingState::Size | FramingState::Trailers => {
                    let rest = &bytes[at..];
                    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                        self.line.extend_from_slice(rest);
                        self.line_may_go_on()?;
                        return Ok(bytes.len());
                    };
                    if self.ends_line(&rest[..end]) {
                        at += end + 1;
                    } else if self.state == FramingState::Head {
                        self.state = FramingState::Refused;
                    } else {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
            }
        }
        Ok(at)
    }

    /// Whether there was an ambiguous head.
    pub(crate) fn has_refused(&self) -> bool {
        self.state == FramingState::Refused
    }

    /// Whether a request has begun and not ended.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn is_within_request(&self) -> bool {
        self.state != FramingState::Head || self.head.has_begun
    }

    /// Skips as much of a body as has arrived.
    fn pass(&mut self, left: u64, there: usize, in_body: fn(u64) -> FramingState) -> usize {
        let step = usize::try_from(left).unwrap_or(usize::MAX).min(there);
        let left = left - step as u64;
        self.state = match (left, self.state) {
            (0, FramingState::Chunk(_)) => FramingState::Size,
            (0, _) => FramingState::Head,
            (left, _) => in_body(left),
        };
        step
    }

    fn line_may_go_on(&self) -> io::Result<()> {
        if self.line.len() > LONGEST_LINE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(())
    }

    /// Ends a line with `tail`. Returns whether it is accepted.
    fn ends_line(&mut self, tail: &[u8]) -> bool {
        if self.line.is_empty() {
            return self.reads(tail);
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(tail);
        let is_accepted = self.reads(&line);
        line.clear();
        self.line = line;
        is_accepted
    }

    fn reads(&mut self, line: &[u8]) -> bool {
        let Some((b'\r', line)) = line.split_last() else {
            return false;
        };
        match self.state {
            FramingState::Size => self.size(line),
            FramingState::Trailers if line.is_empty() => {
                self.state = FramingState::Head;
                true
            }
            FramingState::Trailers => true,
            _ if !self.head.has_begun => {
                // An empty line before a request is skipped.
                self.head.has_begun = !line.is_empty();
                true
            }
            _ if line.is_empty() => {
                let head = std::mem::take(&mut self.head);
                self.state = match (head.is_chunked, head.length) {
                    (true, _) => FramingState::Size,
                    (false, Some(length)) if length > 0 => FramingState::Body(length),
                    (false, _) => FramingState::Head,
                };
                true
            }
            _ => self.head.header(line),
        }
    }

    fn size(&mut self, line: &[u8]) -> bool {
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
        let digits = digits.count();
        let extension = &line[digits..];
        let is_whole = matches!(extension.first(), None | Some(b';' | b' ' | b'\t'));
        let size = str::from_utf8(&line[..digits]).ok();
        let size = size.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match size {
            Some(0) if is_whole => self.state = FramingState::Trailers,
            // Includes the line end.
            Some(size) if is_whole && size < u64::MAX - 2 => {
                self.state = FramingState::Chunk(size + 2);
            }
            _ => return false,
        }
        true
    }
}

impl Head {
    /// Whether a header is consistent with those before it.
    fn header(&mut self, line: &[u8]) -> bool {
        if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
            return true;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return true;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let length = str::from_utf8(value).ok().filter(|_| is_number);
            let length = length.and_then(|digits| digits.parse().ok());
            let is_first = self.length.is_none() && !self.is_chunked;
            self.length = length;
            return is_first && length.is_some();
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_first = self.length.is_none() && !self.is_chunked;
            self.is_chunked = true;
            return is_first && value.eq_ignore_ascii_case(b"chunked");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is passed on, however the bytes are split.
    fn passed(text: &str, step: usize) -> io::Result<Vec<u8>> {
        let (mut framing, mut passed) = (FramingReader::new(), Vec::new());
        for piece in text.as_bytes().chunks(step) {
            let length = framing.look(piece)?;
            passed.extend_from_slice(&piece[..length]);
            assert!(length == piece.len() || framing.has_refused());
        }
        Ok(passed)
    }

    #[test]
    fn whole_requests_pass_byte_by_byte_and_at_once() {
        let many = "\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n\
            POST /1 HTTP/1.1\r\nContent-Length: 5\r\n\r\na\nb\n\n\
            POST /2 HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n\
            a;x=1\r\n0123\n56789\r\n0\r\nt: 1\r\n\r\n\
            POST /3 HTTP/1.1\r\ncontent-length: 0\r\n\r\nGET /4 HTTP/1.1\r\n\r\n";
        for step in 1..many.len() {
            assert_eq!(passed(many, step).unwrap(), many.as_bytes(), "{step}");
        }
    }

    #[test]
    fn a_head_with_two_meanings_is_not_passed_to_its_end() {
        for head in [
            "content-length: 4\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: chunked\r\nContent-Length: 4\r\n",
            "content-length: 4\r\ncontent-length: 4\r\n",
            "content-length: 4\r\ncontent-length: 5\r\n",
            "content-length: 4, 4\r\n",
            "content-length: +4\r\n",
            "content-length: 0x4\r\n",
            "content-length:\r\n",
            "content-length: 99999999999999999999\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: identity\r\n",
            "transfer-encoding:\r\n",
            "a: b\n",
            "a: b\r\n\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\nhost: a\r\n{head}\r\nGET /evil HTTP/1.1\r\n");
            for step in 1..text.len() {
                let passed = passed(&text, step).unwrap();
                assert!(text.as_bytes().starts_with(&passed));
                assert!(!passed.windows(4).any(|bytes| bytes == b"\r\n\r\n"));
                assert!(!passed.windows(2).any(|bytes| bytes == b"\n\n"), "{head:?}");
                assert!(!passed.ends_with(b"\n\r\n"), "{head:?}");
                let evil = text.find("GET /evil").unwrap();
                assert!(passed.len() < evil, "{head:?} passed");
            }
        }
    }

    #[test]
    fn chunks_that_cannot_be_followed_are_an_error() {
        for size in [
            "",
            "x",
            "-1",
            "0x5",
            "5 \n",
            "ffffffffffffffff",
            "10000000000000000",
            "5\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{size}\r\n");
            for step in [1, 7, text.len()] {
                assert!(passed(&text, step).is_err(), "{size:?}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in "(?s)[GPcontelgh:transfrdi 0-9a-f;\r\n]{0,200}", step in 1_usize..50) {
            let _ = passed(&text, step);
            let _ = passed(&format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{text}"), step);
        }
    }
}
