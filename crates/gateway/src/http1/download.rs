//! Parses the body of an answer. It never waits: the caller reads more bytes and calls again.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Frame, SizeHint};

use super::Broken;

/// The longest chunk size line; it may have extensions.
const LONGEST_LINE: usize = 4 * 1024;
const LONGEST_TRAILERS: usize = 32 * 1024;
const MOST_TRAILERS: usize = 64;

/// How much of a body is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Download {
    /// The body has ended.
    Ended,
    /// This many bytes.
    Length(u64),
    /// Chunks, at this position.
    Chunks(ChunkPosition),
    /// Everything until the server closes.
    UntilClose,
}

/// The position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkPosition {
    /// Before a chunk size line.
    Size,
    /// In a chunk, this many bytes before its end.
    Data(u64),
    /// At the line end after a chunk.
    DataEnd,
    /// After the last chunk.
    Trailers,
}

/// The next element in the received bytes.
#[derive(Debug)]
pub(super) enum DownloadStep {
    Frame(Frame<Bytes>),
    /// Incomplete: more bytes are needed.
    More,
    Ended,
}

impl Download {
    /// Takes the next part of the body from the bytes.
    pub(super) fn next(&mut self, bytes: &mut BytesMut) -> Result<DownloadStep, Broken> {
        match self {
            Self::Ended => Ok(DownloadStep::Ended),
            Self::UntilClose if bytes.is_empty() => Ok(DownloadStep::More),
            Self::UntilClose => Ok(DownloadStep::Frame(Frame::data(bytes.split().freeze()))),
            Self::Length(left) => {
                let step = take(bytes, left);
                if *left == 0 {
                    *self = Self::Ended;
                }
                Ok(step)
            }
            Self::Chunks(chunk) => {
                let step = chunk.next(bytes)?;
                // Nothing comes after trailers.
                if match &step {
                    DownloadStep::Frame(frame) => frame.is_trailers(),
                    DownloadStep::More => false,
                    DownloadStep::Ended => true,
                } {
                    *self = Self::Ended;
                }
                Ok(step)
            }
        }
    }

    /// Checks the first chunk size line without consuming it; `None` if more of the line is needed.
    pub(super) fn begins_well(self, bytes: &[u8]) -> Result<Option<()>, Broken> {
        if self != Self::Chunks(ChunkPosition::Size) {
            return Ok(Some(()));
        }
        let Some(end) = line_end(bytes)? else {
            return Ok(None);
        };
        size(&bytes[..end]).map(|_| Some(()))
    }

    pub(super) fn size_hint(self) -> SizeHint {
        match self {
            Self::Ended => SizeHint::with_exact(0),
            Self::Length(left) => SizeHint::with_exact(left),
            Self::Chunks(_) | Self::UntilClose => SizeHint::default(),
        }
    }
}

impl ChunkPosition {
    fn next(&mut self, bytes: &mut BytesMut) -> Result<DownloadStep, Broken> {
        loop {
            match self {
                Self::Size => {
                    let Some(end) = line_end(bytes)? else {
                        return Ok(DownloadStep::More);
                    };
                    let size = size(&bytes[..end])?;
                    bytes.advance(end + 2);
                    *self = match size {
                        0 => Self::Trailers,
                        size => Self::Data(size),
                    };
                }
                Self::Data(left) => {
                    let step = take(bytes, left);
                    if *left == 0 {
                        *self = Self::DataEnd;
                    }
                    return Ok(step);
                }
                Self::DataEnd => {
                    match bytes.get(..2) {
                        Some(b"\r\n") => bytes.advance(2),
                        None if bytes.is_empty() || bytes[0] == b'\r' => {
                            return Ok(DownloadStep::More);
                        }
                        _ => {
                            return Err(Broken::Malformed(
                                "a chunk is longer than its declared size",
                            ));
                        }
                    }
                    *self = Self::Size;
                }
                Self::Trailers => return trailers(bytes),
            }
        }
    }
}

/// Takes the available bytes that belong to the body.
fn take(bytes: &mut BytesMut, left: &mut u64) -> DownloadStep {
    if bytes.is_empty() {
        return DownloadStep::More;
    }
    let count = usize::try_from(*left).unwrap_or(usize::MAX);
    let data = bytes.split_to(count.min(bytes.len()));
    *left -= data.len() as u64;
    DownloadStep::Frame(Frame::data(data.freeze()))
}

/// The end of the first line.
fn line_end(bytes: &[u8]) -> Result<Option<usize>, Broken> {
    let line = &bytes[..bytes.len().min(LONGEST_LINE)];
    match line.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && line[end - 1] == b'\r' => Ok(Some(end - 1)),
        Some(_) => Err(Broken::Malformed(
            "a line in a chunked body has an invalid end",
        )),
        None if bytes.len() < LONGEST_LINE => Ok(None),
        None => Err(Broken::Malformed("a line in a chunked body is too long")),
    }
}

fn size(line: &[u8]) -> Result<u64, Broken> {
    const BAD: Broken = Broken::Malformed("a chunk has no size");
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let (digits, rest) = line.split_at(digits.count());
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let after_blanks = rest.iter().find(|byte| !is_blank(byte));
    // Servers do not agree on whether a bare carriage return ends a line.
    if !matches!(after_blanks, None | Some(b';')) || rest.contains(&b'\r') {
        return Err(BAD);
    }
    let digits = str::from_utf8(digits).map_err(|_| BAD)?;
    u64::from_str_radix(digits, 16).map_err(|_| BAD)
}

fn trailers(bytes: &mut BytesMut) -> Result<DownloadStep, Broken> {
    const BAD: Broken = Broken::Malformed("invalid trailers");
    if bytes.starts_with(b"\r\n") {
        bytes.advance(2);
        return Ok(DownloadStep::Ended);
    }
    let mut found = [httparse::EMPTY_HEADER; MOST_TRAILERS];
    match httparse::parse_headers(bytes, &mut found) {
        // Servers do not agree on whether a bare newline ends a line, and with it the answer.
        Ok(httparse::Status::Complete((length, _))) if has_bare_newline(&bytes[..length]) => {
            Err(Broken::Malformed("a trailer ends in a bare newline"))
        }
        Ok(httparse::Status::Complete((length, found))) => {
            let mut trailers = HeaderMap::with_capacity(found.len());
            for header in found {
                let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| BAD)?;
                let value = HeaderValue::from_bytes(header.value).map_err(|_| BAD)?;
                trailers.append(name, value);
            }
            bytes.advance(length);
            Ok(DownloadStep::Frame(Frame::trailers(trailers)))
        }
        Ok(httparse::Status::Partial) if bytes.len() <= LONGEST_TRAILERS => Ok(DownloadStep::More),
        _ => Err(BAD),
    }
}

fn has_bare_newline(lines: &[u8]) -> bool {
    let mut before = 0;
    lines.iter().any(|byte| {
        let is_bare = *byte == b'\n' && before != b'\r';
        before = *byte;
        is_bare
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    /// The content of a body that arrives in pieces of this many bytes, and the bytes after it.
    fn read(mut download: Download, text: &[u8], piece: usize) -> Result<(String, String), Broken> {
        let (mut bytes, mut said) = (BytesMut::new(), String::new());
        let mut pieces = text.chunks(piece);
        loop {
            match download.next(&mut bytes)? {
                DownloadStep::Frame(frame) => match frame.into_data() {
                    Ok(data) => said.push_str(str::from_utf8(&data).unwrap()),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap();
                        write!(said, "{trailers:?}").unwrap();
                    }
                },
                DownloadStep::More => match pieces.next() {
                    Some(piece) => bytes.extend_from_slice(piece),
                    None => return Err(Broken::Closed),
                },
                DownloadStep::Ended => {
                    for piece in pieces {
                        bytes.extend_from_slice(piece);
                    }
                    let left = str::from_utf8(&bytes).unwrap().to_owned();
                    return Ok((said, left));
                }
            }
        }
    }

    fn chunked(text: &str) -> Result<(String, String), Broken> {
        let whole = read(
            Download::Chunks(ChunkPosition::Size),
            text.as_bytes(),
            text.len().max(1),
        );
        for piece in 1..text.len() {
            let in_pieces = read(
                Download::Chunks(ChunkPosition::Size),
                text.as_bytes(),
                piece,
            );
            assert_eq!(
                format!("{whole:?}"),
                format!("{in_pieces:?}"),
                "{text:?} in {piece}"
            );
        }
        whole
    }

    #[test]
    fn a_length_ends_where_it_says() {
        for piece in 1..8 {
            let read = read(Download::Length(5), b"helloHTTP", piece).unwrap();
            assert_eq!(read, ("hello".to_owned(), "HTTP".to_owned()));
        }
        assert!(read(Download::Length(5), b"hell", 3).is_err());
    }

    #[test]
    fn chunks_are_put_together_however_they_come() {
        for (text, said, left) in [
            ("0\r\n\r\n", "", ""),
            (
                "5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\nHTTP",
                "hello world",
                "HTTP",
            ),
            ("00A \r\n0123456789\r\n0\t ;last\r\n\r\n", "0123456789", ""),
            (
                "1\r\nx\r\n0\r\nX-Sum: 1\r\na: b\r\n\r\nH",
                "x{\"x-sum\": \"1\", \"a\": \"b\"}",
                "H",
            ),
        ] {
            let read = chunked(text).unwrap();
            assert_eq!(read, (said.to_owned(), left.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn chunks_that_can_be_read_in_two_ways_are_refused() {
        let long = format!("1;{}\r\nx\r\n0\r\n\r\n", "x".repeat(LONGEST_LINE));
        for text in [
            "",
            "\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "-1\r\nx\r\n0\r\n\r\n",
            "+1\r\nx\r\n0\r\n\r\n",
            "0x1\r\nx\r\n0\r\n\r\n",
            "1x\r\nx\r\n0\r\n\r\n",
            "1 x\r\nx\r\n0\r\n\r\n",
            "1\r\r\nx\r\n0\r\n\r\n",
            "1\r;a\r\nx\r\n0\r\n\r\n",
            "1;a\r\r\nx\r\n0\r\n\r\n",
            "1;a\rb\r\nx\r\n0\r\n\r\n",
            "1\u{c}\r\nx\r\n0\r\n\r\n",
            "1 \u{c};a\r\nx\r\n0\r\n\r\n",
            "1\r\nx\r\n0;a\r\r\n\r\n",
            "10000000000000000\r\nx\r\n0\r\n\r\n",
            "1\r\nx\r\n0\r\nno trailer\r\n\r\n",
            "1\r\nx\r\n0\r\n\n",
            "1\r\nx\r\n0\r\na: b\n\n",
            "1\r\nx\r\n0\r\na: b\r\n\n",
            "1\r\nx\r\n0\r\na: b\nc: d\r\n\r\n",
            "1\r\nx\r\n0\r\na: b\n\r\nc\r\n\r\n",
            "5\r\nhell",
            &long,
        ] {
            assert!(chunked(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_first_chunk_is_judged_by_its_first_line() {
        let chunks = Download::Chunks(ChunkPosition::Size);
        for (text, judged) in [
            ("", Some(None)),
            ("5;a", Some(None)),
            ("5\r\n", Some(Some(()))),
            ("0\r\n\r\n", Some(Some(()))),
            ("zz\r\n", None),
            ("-1\r\n", None),
            ("5\n", None),
        ] {
            let found = chunks.begins_well(text.as_bytes()).ok();
            assert_eq!(found, judged, "{text:?}");
        }
        assert_eq!(Download::Length(5).begins_well(b"zz").ok(), Some(Some(())));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_the_same_in_pieces(parts in prop::collection::vec(
            prop_oneof![
                Just("\r\n".to_owned()),
                Just("0\r\n".to_owned()),
                Just("3\r\nabc\r\n".to_owned()),
                Just("1;x=y\r\nz\r\n".to_owned()),
                Just("a: b\r\n".to_owned()),
                "[0-9a-f;: \r\n\\x00-\\x7f]{0,4}",
            ],
            0..8,
        )) {
            let _ = chunked(&parts.concat());
        }
    }
}
