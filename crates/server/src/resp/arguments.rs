//! Parses commands in the buffer of a connection, in place.
//!
//! A command is an array of bulk strings, or a line of words as a person types it. A length that a client claims
//! allocates nothing: bytes are awaited within the limits below, and anything else ends the connection.

use super::inline;

/// The most arguments of a command, its name included.
pub(super) const MAX_ARGUMENTS: usize = 512;
/// The longest argument, in bytes.
pub(super) const MAX_BULK: usize = 16 * 1024;
/// The longest inline command.
pub(super) const MAX_LINE: usize = 16 * 1024;
/// The longest command in all.
pub(super) const MAX_COMMAND: usize = 256 * 1024;

/// Why bytes are not a command. Nothing after them can be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("invalid multibulk length; a command has at most {MAX_ARGUMENTS} arguments")]
    Count,
    #[error("invalid bulk length; an argument has at most {MAX_BULK} bytes")]
    Length,
    #[error("expected '$', got '{}'; a command is an array of bulk strings", .0.escape_ascii())]
    NotBulk(u8),
    #[error("an argument is longer than its declared length")]
    NoEnd,
    #[error("too big request; a command has at most {MAX_COMMAND} bytes")]
    TooLong,
    #[error("too big inline request; a line has at most {MAX_LINE} bytes")]
    LineTooLong,
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// The positions of the arguments of one command. Reused for the next.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    ranges: Vec<(usize, usize)>,
    /// The arguments of a line, without their quotes.
    unquoted: Vec<u8>,
    is_line: bool,
}

/// One command.
#[derive(Debug, Clone, Copy)]
pub(super) struct RespCommand<'a> {
    bytes: &'a [u8],
    ranges: &'a [(usize, usize)],
}

impl Arguments {
    /// Parses the command at the start of `bytes`. Returns its length, or `None` if more bytes are needed. An
    /// empty line is a command without arguments.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        self.ranges.clear();
        self.is_line = false;
        match bytes.first() {
            None => Ok(None),
            Some(b'*') => self.read_array(bytes),
            Some(_) => self.read_line(bytes),
        }
    }

    /// The command that was parsed at the start of these bytes.
    pub(super) fn of<'a>(&'a self, bytes: &'a [u8]) -> RespCommand<'a> {
        let bytes = if self.is_line { &self.unquoted } else { bytes };
        RespCommand {
            bytes,
            ranges: &self.ranges,
        }
    }

    fn read_array(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some((count, mut at)) = number(bytes, 1, ProtocolError::Count)? else {
            return Ok(None);
        };
        let count = usize::try_from(count).unwrap_or(0);
        if count > MAX_ARGUMENTS {
            return Err(ProtocolError::Count);
        }
        for _ in 0..count {
            match bytes.get(at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => return Err(ProtocolError::NotBulk(*other)),
            }
            let Some((length, start)) = number(bytes, at + 1, ProtocolError::Length)? else {
                return Ok(None);
            };
            let length = usize::try_from(length).map_err(|_| ProtocolError::Length)?;
            if length > MAX_BULK {
                return Err(ProtocolError::Length);
            }
            let end = start + length;
            if end + 2 > MAX_COMMAND {
                return Err(ProtocolError::TooLong);
            }
            match bytes.get(end..end + 2) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::NoEnd),
            }
            self.ranges.push((start, end));
            at = end + 2;
        }
        Ok(Some(at))
    }

    fn read_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let within = &bytes[..bytes.len().min(MAX_LINE)];
        let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
            return if within.len() < MAX_LINE {
                Ok(None)
            } else {
                Err(ProtocolError::LineTooLong)
            };
        };
        self.is_line = true;
        self.unquoted.clear();
        let line = &within[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.unquoted, &mut self.ranges).ok_or(ProtocolError::Quotes)?;
        if self.ranges.len() > MAX_ARGUMENTS {
            return Err(ProtocolError::Count);
        }
        Ok(Some(end + 1))
    }
}

impl<'a> RespCommand<'a> {
    /// How many arguments there are, the name included.
    pub(super) fn len(self) -> usize {
        self.ranges.len()
    }

    /// The argument at this index; empty if there is none.
    pub(super) fn get(self, index: usize) -> &'a [u8] {
        let range = self.ranges.get(index);
        range
            .and_then(|(start, end)| self.bytes.get(*start..*end))
            .unwrap_or_default()
    }

    /// The arguments from this index on.
    pub(super) fn from(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> {
        (index..self.len().max(index)).map(move |index| self.get(index))
    }

    /// Whether an argument is this upper-case word, in any case.
    pub(super) fn is(self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// A whole number that ends its line: the number, and where the next line begins.
#[inline]
fn number(
    bytes: &[u8],
    start: usize,
    error: ProtocolError,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    // More digits than any allowed length.
    const LONGEST: usize = 10;
    let is_negative = bytes.get(start) == Some(&b'-');
    let first = start + usize::from(is_negative);
    let (mut at, mut value) = (first, 0_i64);
    loop {
        match bytes.get(at) {
            None => return Ok(None),
            Some(digit @ b'0'..=b'9') if at - first < LONGEST => {
                value = value * 10 + i64::from(digit - b'0');
                at += 1;
            }
            Some(b'\r') if at > first => break,
            Some(_) => return Err(error),
        }
    }
    match bytes.get(at + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((if is_negative { -value } else { value }, at + 2))),
        Some(_) => Err(error),
    }
}

#[cfg(test)]
mod tests;
