//! Lines of a stream of bytes, without an allocation for each.

use std::io::{self, Read};

/// A longer line is malformed.
pub(super) const LONGEST: usize = 1 << 20;
const BLOCK: usize = 1 << 18;

/// A line, without its line feed and the carriage return before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CutLine<'l> {
    Text(&'l [u8]),
    TooLong,
}

/// Cuts a stream into lines. The last one may have no line feed.
pub(super) struct LogLines {
    stream: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// What of the buffer is filled and not yet taken.
    start: usize,
    end: usize,
    is_at_end: bool,
}

impl LogLines {
    pub(super) fn new(stream: Box<dyn Read + Send>) -> Self {
        Self {
            stream,
            buffer: vec![0; BLOCK],
            start: 0,
            end: 0,
            is_at_end: false,
        }
    }

    /// Whether the next line is not yet read.
    pub(super) fn is_drained(&self) -> bool {
        memchr::memchr(b'\n', &self.buffer[self.start..self.end]).is_none()
    }

    /// The next line; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<CutLine<'_>>> {
        let mut searched = self.start;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let (first, last) = (self.start, searched + at);
                self.start = last + 1;
                return Ok(Some(line_of(&self.buffer[first..last])));
            }
            searched = self.end;
            if self.is_at_end {
                let first = self.start;
                self.start = self.end;
                return Ok((first < self.end).then(|| line_of(&self.buffer[first..self.end])));
            }
            if self.end - self.start > LONGEST + 2 {
                self.skip()?;
                return Ok(Some(CutLine::TooLong));
            }
            searched -= self.start;
            self.fill()?;
            searched += self.start;
        }
    }

    /// Reads more behind what is not yet taken.
    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    /// Drops everything up to the next line feed.
    fn skip(&mut self) -> io::Result<()> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
                self.start += at + 1;
                return Ok(());
            }
            self.start = self.end;
            if self.is_at_end {
                return Ok(());
            }
            self.fill()?;
        }
    }
}

fn line_of(line: &[u8]) -> CutLine<'_> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > LONGEST {
        return CutLine::TooLong;
    }
    CutLine::Text(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: Vec<u8>) -> Vec<Option<Vec<u8>>> {
        let mut lines = LogLines::new(Box::new(io::Cursor::new(text)));
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(match line {
                CutLine::Text(text) => Some(text.to_vec()),
                CutLine::TooLong => None,
            });
        }
        all
    }

    #[test]
    fn lines_of_any_length() {
        let some = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(lines(b"".to_vec()), []);
        assert_eq!(
            lines(b"a\r\n\nb".to_vec()),
            [some("a"), some(""), some("b")]
        );
        let long = vec![b'x'; LONGEST];
        let mut text = long.clone();
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(&long);
        text.extend_from_slice(b"x\nafter\n");
        text.extend(vec![b'y'; 3 * LONGEST]);
        text.extend_from_slice(b"\nlast");
        assert_eq!(
            lines(text),
            [Some(long), None, some("after"), None, some("last")]
        );
    }
}
