//! A client that sees every byte.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use crate::Server;
use tidegate_testkit_server::PATIENCE;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A reply. Whole numbers and null are the same in both versions; all else that is a line is its text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Integer(i64),
    Text(String),
    Error(String),
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(crate) fn integers(numbers: &[i64]) -> Self {
        Self::Array(
            numbers
                .iter()
                .map(|number| Self::Integer(*number))
                .collect(),
        )
    }

    /// The error that it is.
    #[track_caller]
    pub(crate) fn error(self) -> String {
        match self {
            Self::Error(text) => text,
            other => panic!("an error, not {other:?}"),
        }
    }
}

impl Client {
    pub(crate) fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(server.resp.unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a line of words and waits for the reply.
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(&command(line));
        self.reply()
    }

    /// The same with words that may have spaces in them, or be no text.
    pub(crate) fn ask_words(&mut self, words: &[impl AsRef<[u8]>]) -> Value {
        self.send(&command_of(words));
        self.reply()
    }

    #[track_caller]
    pub(crate) fn reply(&mut self) -> Value {
        self.try_reply().unwrap()
    }

    /// Whether the server has closed the connection, after all of these bytes.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    }

    fn try_reply(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.strip_suffix("\r\n").unwrap();
        let (kind, text) = line.split_at(1);
        let count = || text.parse::<i64>().unwrap();
        Ok(match kind {
            ":" => Value::Integer(count()),
            "-" => Value::Error(text.to_owned()),
            "_" => Value::Null,
            "$" if count() < 0 => Value::Null,
            "$" => {
                let mut bytes = vec![0; usize::try_from(count()).unwrap() + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Value::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            "*" => Value::Array(
                (0..count())
                    .map(|_| self.try_reply())
                    .collect::<Result<_, _>>()?,
            ),
            "%" => {
                let pair = |_| Ok((self.try_reply()?, self.try_reply()?));
                Value::Map((0..count()).map(pair).collect::<io::Result<_>>()?)
            }
            _ => Value::Text(text.to_owned()),
        })
    }
}

/// A line of words as clients send it.
pub(crate) fn command(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split_whitespace().collect();
    command_of(&words)
}

fn command_of(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
