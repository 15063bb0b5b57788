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
pub enum ProtocolError {
    /// An array with too many arguments, or a length that is no number.
    #[error("invalid multibulk length; a command has at most {MAX_ARGUMENTS} arguments")]
    Count,
    /// An argument that is too long, or whose length is no number.
    #[error("invalid bulk length; an argument has at most {MAX_BULK} bytes")]
    Length,
    /// An argument that is not a bulk string.
    #[error("expected '$', got '{}'; a command is an array of bulk strings", .0.escape_ascii())]
    NotBulk(u8),
    /// An argument without its end.
    #[error("an argument is longer than its declared length")]
    NoEnd,
    /// A command that is too long.
    #[error("too big request; a command has at most {MAX_COMMAND} bytes")]
    TooLong,
    /// An inline command that is too long.
    #[error("too big inline request; a line has at most {MAX_LINE} bytes")]
    LineTooLong,
    /// An inline command whose quotes do not match.
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// The positions of the arguments of one command. Reused for the next.
#[derive(Debug, Default)]
pub struct Arguments {
    ranges: Vec<(usize, usize)>,
    /// The arguments of a line, without their quotes.
    unquoted: Vec<u8>,
    is_line: bool,
}

/// One command.
#[derive(Debug, Clone, Copy)]
pub struct RespCommand<'a> {
    bytes: &'a [u8],
    ranges: &'a [(usize, usize)],
    is_line: bool,
}

impl Arguments {
    /// Parses the command at the start of `bytes`. Returns its length, or `None` if more bytes are needed. An
    /// empty line is a command without arguments.
    #[inline]
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        self.ranges.clear();
        self.is_line = false;
        match bytes.first() {
            None => Ok(None),
            Some(b'*') => self.read_array(bytes),
            Some(_) => self.read_line(bytes),
        }
    }

    /// The command that was parsed at the start of these bytes.
    #[inline]
    pub fn of<'a>(&'a self, bytes: &'a [u8]) -> RespCommand<'a> {
        let bytes = if self.is_line { &self.unquoted } else { bytes };
        RespCommand {
            bytes,
            ranges: &self.ranges,
            is_line: self.is_line,
        }
    }

    fn read_array(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let (count, mut at) = match bytes {
            // Nearly all commands: the count is one digit.
            [_, digit @ b'0'..=b'9', b'\r', b'\n', ..] => (usize::from(digit - b'0'), 4),
            _ => match count(bytes)? {
                Some(counted) => counted,
                None => return Ok(None),
            },
        };
        for _ in 0..count {
            let (length, start) = match bytes.get(at..).unwrap_or_default() {
                // Nearly all arguments: the length has one digit, or two.
                [b'$', digit @ b'0'..=b'9', b'\r', b'\n', ..] => {
                    (usize::from(digit - b'0'), at + 4)
                }
                [
                    b'$',
                    tens @ b'0'..=b'9',
                    ones @ b'0'..=b'9',
                    b'\r',
                    b'\n',
                    ..,
                ] => (usize::from((tens - b'0') * 10 + (ones - b'0')), at + 5),
                _ => match bulk_length(bytes, at)? {
                    Some(measured) => measured,
                    None => return Ok(None),
                },
            };
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
    #[inline]
    pub fn len(self) -> usize {
        self.ranges.len()
    }

    /// Whether it has not even a name.
    pub fn is_empty(self) -> bool {
        self.ranges.is_empty()
    }

    /// The argument at this index; empty if there is none.
    #[inline]
    pub fn get(self, index: usize) -> &'a [u8] {
        let range = self.ranges.get(index);
        range
            .and_then(|(start, end)| self.bytes.get(*start..*end))
            .unwrap_or_default()
    }

    /// The arguments from this index on.
    pub fn from(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> {
        (index..self.len().max(index)).map(move |index| self.get(index))
    }

    /// Whether an argument is this upper-case word, in any case.
    #[inline]
    pub fn is(self, index: usize, word: &str) -> bool {
        let (given, word) = (self.get(index), word.as_bytes());
        given == word || given.eq_ignore_ascii_case(word)
    }

    /// The raw bytes from one argument to the end of another, including the separators. `None` for an inline command,
    /// which has no lengths between arguments.
    #[inline]
    pub(super) fn span(self, first: usize, last: usize) -> Option<&'a [u8]> {
        let (start, end) = (self.ranges.get(first)?.0, self.ranges.get(last)?.1);
        self.bytes.get(start..end).filter(|_| !self.is_line)
    }
}

/// How many arguments an array has, and where the first begins.
#[cold]
fn count(bytes: &[u8]) -> Result<Option<(usize, usize)>, ProtocolError> {
    let Some((count, at)) = number(bytes, 1, ProtocolError::Count)? else {
        return Ok(None);
    };
    let count = usize::try_from(count).unwrap_or(0);
    if count > MAX_ARGUMENTS {
        return Err(ProtocolError::Count);
    }
    Ok(Some((count, at)))
}

/// The length of the argument whose head is at `at`, and where it begins.
#[cold]
fn bulk_length(bytes: &[u8], at: usize) -> Result<Option<(usize, usize)>, ProtocolError> {
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
    Ok(Some((length, start)))
}

/// A whole number that ends its line: the number, and where the next line begins.
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
