//! Commands of the Redis protocol, several of them sent together.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

use super::{Lane, LoadAnswer};
use crate::connect::{Endpoint, LoadConnection};
use crate::error::LoadRunError;
use crate::template::KeyTemplate;

/// The longest reply that is read, in bytes.
const MAX_REPLY: usize = 1 << 20;
/// How deep arrays may be in a reply.
const MAX_DEPTH: usize = 8;
/// How many bytes are read at a time: more than the replies to all commands that are sent together.
const READ_SIZE: usize = 16 * 1024;

/// A command that is sent again and again, with another key in it.
#[derive(Clone)]
pub struct RespTarget {
    inner: Arc<RespCall>,
}

struct RespCall {
    endpoint: Endpoint,
    token: Option<String>,
    /// The first word.
    name: String,
    /// The command, as it is sent.
    pieces: Vec<CommandPiece>,
    /// The first number of a reply that allows; nothing if every reply does that is no error.
    allowed_number: Option<i64>,
}

/// A part of a command.
enum CommandPiece {
    /// Words without a key, as they are sent.
    Fixed(String),
    /// A word with a key in it.
    Keyed(KeyTemplate),
}

/// Which command is sent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LoadCommand {
    /// `CL.THROTTLE`, which brings its own limit.
    Throttle {
        /// The key, in which `{key}` is replaced.
        key: String,
        /// The burst on top of one request.
        max_burst: u64,
        /// How many requests a period has.
        count: u64,
        /// Seconds.
        period: u64,
    },
    /// `TG.CHECK`, which is decided by the rules: names and values, in which `{key}` is replaced.
    Check(Vec<(String, String)>),
    /// Any command: its words, in which `{key}` is replaced. Every reply allows that is no error.
    Any(Vec<String>),
}

impl RespTarget {
    /// Sends this command, after `AUTH` if there is a token.
    pub fn new(endpoint: Endpoint, command: &LoadCommand, token: Option<&str>) -> Self {
        let (words, allowed_number) = command.words();
        Self {
            inner: Arc::new(RespCall {
                endpoint,
                token: token.map(str::to_owned),
                name: words.first().cloned().unwrap_or_default(),
                pieces: pieces(&words),
                allowed_number,
            }),
        }
    }

    pub(crate) fn lane(&self) -> impl Lane + use<> {
        RespLane {
            call: Arc::clone(&self.inner),
            connection: None,
            text: String::new(),
            word: String::new(),
            received: LoadReplies::default(),
        }
    }
}

impl LoadCommand {
    /// Its words, and the first number of a reply that allows.
    fn words(&self) -> (Vec<String>, Option<i64>) {
        match self {
            Self::Throttle {
                key,
                max_burst,
                count,
                period,
            } => {
                let numbers = [max_burst, count, period].map(ToString::to_string);
                let words = ["CL.THROTTLE".to_owned(), key.clone()];
                (words.into_iter().chain(numbers).collect(), Some(0))
            }
            Self::Check(attributes) => {
                let pairs = attributes.iter();
                let pairs = pairs.flat_map(|(name, value)| [name.clone(), value.clone()]);
                let name = std::iter::once("TG.CHECK".to_owned());
                (name.chain(pairs).collect(), Some(1))
            }
            Self::Any(words) => (words.clone(), None),
        }
    }
}

/// The pieces of a command: constant parts are written once.
fn pieces(words: &[String]) -> Vec<CommandPiece> {
    let mut fixed = String::new();
    write_head(words.len(), &mut fixed);
    let mut pieces = Vec::new();
    for word in words {
        let template = KeyTemplate::new(word);
        if template.is_fixed() {
            write_word(word, &mut fixed);
        } else {
            pieces.push(CommandPiece::Fixed(std::mem::take(&mut fixed)));
            pieces.push(CommandPiece::Keyed(template));
        }
    }
    pieces.push(CommandPiece::Fixed(fixed));
    pieces
}

impl fmt::Display for RespTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KeyTemplate::new(&self.inner.name).fill(0);
        write!(f, "{name} at {}", self.inner.endpoint.authority())
    }
}

struct RespLane {
    call: Arc<RespCall>,
    connection: Option<LoadConnection>,
    /// Commands that are about to be sent.
    text: String,
    /// One word of them.
    word: String,
    received: LoadReplies,
}

impl RespLane {
    /// The connection to send on: a new one if the server has closed the last, as it may close an idle one.
    async fn connection_to_send(&mut self) -> Result<&mut LoadConnection, LoadRunError> {
        if let Some(connection) = &mut self.connection {
            let mut byte = [0];
            let mut unasked = ReadBuf::new(&mut byte);
            let looked = poll_fn(|cx| Poll::Ready(connection.as_mut().poll_read(cx, &mut unasked)));
            match looked.await {
                Poll::Pending => {}
                Poll::Ready(_) if unasked.filled().is_empty() => self.connection = None,
                Poll::Ready(_) => {
                    return Err(LoadRunError::Lost("a reply to no command".to_owned()));
                }
            }
        }
        self.connection().await
    }

    async fn connection(&mut self) -> Result<&mut LoadConnection, LoadRunError> {
        if self.connection.is_none() {
            let mut connection = self.call.endpoint.connect().await?;
            self.received = LoadReplies::default();
            if let Some(token) = &self.call.token {
                let mut text = String::new();
                write_command(["AUTH", token].into_iter(), &mut text);
                connection.write_all(text.as_bytes()).await?;
                if let RespReply::Error(error) = self.received.next(&mut connection).await? {
                    return Err(LoadRunError::Lost(error));
                }
            }
            self.connection = Some(connection);
        }
        let lost = || LoadRunError::Lost("there is no connection".to_owned());
        self.connection.as_mut().ok_or_else(lost)
    }
}

impl Lane for RespLane {
    async fn exchange(
        &mut self,
        keys: &[u64],
        mut answered: impl FnMut(LoadAnswer) + Send,
    ) -> Result<(), LoadRunError> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let call = Arc::clone(&self.call);
        for key in keys {
            write_pieces(&call.pieces, *key, &mut self.word, &mut text);
        }
        let connection = self.connection_to_send().await?;
        connection.write_all(text.as_bytes()).await?;
        self.text = text;
        let mut received = std::mem::take(&mut self.received);
        let connection = self.connection().await?;
        for _ in keys {
            let reply = received.next(connection).await?;
            answered(match (reply, call.allowed_number) {
                (RespReply::Error(error), _) => LoadAnswer::Other(error),
                (_, None) => LoadAnswer::Allowed,
                (RespReply::Number(number), Some(allowed)) if number == allowed => {
                    LoadAnswer::Allowed
                }
                (RespReply::Number(_), Some(_)) => LoadAnswer::Denied,
                (RespReply::Text, Some(_)) => {
                    LoadAnswer::Other("a reply without a number".to_owned())
                }
            });
        }
        self.received = received;
        Ok(())
    }

    fn disconnect(&mut self) {
        self.connection = None;
    }
}

/// Writes a command for a key. `word` is overwritten.
fn write_pieces(pieces: &[CommandPiece], key: u64, word: &mut String, text: &mut String) {
    for piece in pieces {
        match piece {
            CommandPiece::Fixed(words) => text.push_str(words),
            CommandPiece::Keyed(template) => {
                word.clear();
                template.write(key, word);
                write_word(word, text);
            }
        }
    }
}

fn write_command<'w>(words: impl ExactSizeIterator<Item = &'w str>, text: &mut String) {
    write_head(words.len(), text);
    for word in words {
        write_word(word, text);
    }
}

fn write_head(words: usize, text: &mut String) {
    text.push('*');
    text.push_str(itoa::Buffer::new().format(words));
    text.push_str("\r\n");
}

fn write_word(word: &str, text: &mut String) {
    text.push('$');
    text.push_str(itoa::Buffer::new().format(word.len()));
    text.push_str("\r\n");
    text.push_str(word);
    text.push_str("\r\n");
}

/// The kind of a reply.
#[derive(Debug, PartialEq, Eq)]
enum RespReply {
    /// The first number in it.
    Number(i64),
    /// No number.
    Text,
    Error(String),
}

/// The received bytes and replies.
#[derive(Default)]
struct LoadReplies {
    bytes: Vec<u8>,
    /// Where the next reply begins.
    start: usize,
}

impl LoadReplies {
    /// Reads the next reply.
    async fn next(&mut self, connection: &mut LoadConnection) -> Result<RespReply, LoadRunError> {
        loop {
            let mut scan = ReplyScan::default();
            match scan.value(&self.bytes, self.start, 0) {
                Ok(Some(end)) => {
                    self.start = end;
                    return Ok(scan.reply());
                }
                Ok(None) if self.bytes.len() - self.start < MAX_REPLY => {
                    self.bytes.drain(..self.start);
                    self.start = 0;
                    // A vector offers 64 bytes by itself when it is full.
                    self.bytes.reserve(READ_SIZE);
                    if connection.read_buf(&mut self.bytes).await? == 0 {
                        return Err(LoadRunError::Lost(
                            "connection closed by the server".to_owned(),
                        ));
                    }
                }
                _ => return Err(LoadRunError::Lost("an unreadable reply".to_owned())),
            }
        }
    }
}

/// A reply as far as it was read.
#[derive(Default)]
struct ReplyScan {
    error: Option<String>,
    first_number: Option<i64>,
}

impl ReplyScan {
    /// Reads a value at `start`. Returns its end, or `None` if it has not arrived yet.
    fn value(&mut self, bytes: &[u8], start: usize, depth: usize) -> Result<Option<usize>, ()> {
        let Some(line_end) = find_line_end(bytes, start) else {
            return Ok(None);
        };
        let line = bytes.get(start..line_end).ok_or(())?;
        let (kind, rest) = line.split_first().ok_or(())?;
        let end = line_end + 2;
        match kind {
            b'-' => {
                self.error = Some(String::from_utf8_lossy(rest).into_owned());
                Ok(Some(end))
            }
            b':' => {
                let number = number(rest)?;
                self.first_number.get_or_insert(number);
                Ok(Some(end))
            }
            b'+' => Ok(Some(end)),
            b'$' => match number(rest)? {
                ..0 => Ok(Some(end)),
                length => {
                    let length = usize::try_from(length).map_err(|_| ())?;
                    let end = end.checked_add(length).and_then(|end| end.checked_add(2));
                    let end = end.filter(|end| end - start <= MAX_REPLY).ok_or(())?;
                    Ok((bytes.len() >= end).then_some(end))
                }
            },
            b'*' if depth < MAX_DEPTH => {
                let count = number(rest)?;
                let mut at = end;
                for _ in 0..count.max(0) {
                    match self.value(bytes, at, depth + 1)? {
                        Some(next) => at = next,
                        None => return Ok(None),
                    }
                }
                Ok(Some(at))
            }
            _ => Err(()),
        }
    }

    fn reply(self) -> RespReply {
        match (self.error, self.first_number) {
            (Some(error), _) => RespReply::Error(error),
            (None, Some(number)) => RespReply::Number(number),
            (None, None) => RespReply::Text,
        }
    }
}

/// The number in a line.
fn number(text: &[u8]) -> Result<i64, ()> {
    let text = std::str::from_utf8(text).map_err(|_| ())?;
    text.parse().map_err(|_| ())
}

fn find_line_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut from = start;
    loop {
        from += bytes.get(from..)?.iter().position(|byte| *byte == b'\r')?;
        if *bytes.get(from + 1)? == b'\n' {
            return Some(from);
        }
        from += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<(usize, RespReply)>, ()> {
        let mut scan = ReplyScan::default();
        let end = scan.value(bytes, 0, 0)?;
        Ok(end.map(|end| (end, scan.reply())))
    }

    #[test]
    fn replies_are_read_whole_or_not_at_all() {
        let throttle = b"*5\r\n:1\r\n:16\r\n:0\r\n:2\r\n:32\r\n";
        assert_eq!(
            read(throttle),
            Ok(Some((throttle.len(), RespReply::Number(1))))
        );
        for end in 0..throttle.len() {
            assert_eq!(read(&throttle[..end]), Ok(None), "{end}");
        }
        let check = b"*4\r\n$7\r\nallowed\r\n:1\r\n$4\r\nrule\r\n$-1\r\n+next";
        assert_eq!(
            read(check),
            Ok(Some((check.len() - 5, RespReply::Number(1))))
        );
        let error = b"-NOAUTH send AUTH\r\n";
        let text = RespReply::Error("NOAUTH send AUTH".to_owned());
        assert_eq!(read(error), Ok(Some((error.len(), text))));
        assert_eq!(read(b"+OK\r\n"), Ok(Some((5, RespReply::Text))));
    }

    #[test]
    fn bytes_that_are_no_reply_are_refused_without_a_panic() {
        for bytes in [
            &b"?\r\n"[..],
            b"\r\n",
            b":x\r\n",
            b"$99999999999999999999\r\n",
            b"$9223372036854775807\r\n",
            b":\xff\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:0\r\n",
        ] {
            assert_eq!(read(bytes), Err(()), "{bytes:?}");
        }
    }

    #[test]
    fn a_key_goes_into_every_word_that_has_it() {
        let words = ["SET", "u{key}", "1", "EX", "{key}{key}"].map(str::to_owned);
        let (mut word, mut text) = (String::new(), String::new());
        for key in [7, 12] {
            write_pieces(&pieces(&words), key, &mut word, &mut text);
        }
        assert_eq!(
            text,
            "*5\r\n$3\r\nSET\r\n$2\r\nu7\r\n$1\r\n1\r\n$2\r\nEX\r\n$2\r\n77\r\n\
             *5\r\n$3\r\nSET\r\n$3\r\nu12\r\n$1\r\n1\r\n$2\r\nEX\r\n$4\r\n1212\r\n"
        );
    }

    #[test]
    fn a_command_is_an_array_of_words() {
        let mut text = String::new();
        write_command(["AUTH", "é"].into_iter(), &mut text);
        assert_eq!(text, "*2\r\n$4\r\nAUTH\r\n$2\r\né\r\n");
    }
}
