//! One HTTP/1.1 exchange with a server: over a kept connection for load, over a new one for everything else. Reads only what the
//! suite needs from an answer, so that the client takes little of the machine that it measures.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(5);

/// What a check answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckAnswer {
    pub(crate) is_allowed: bool,
    pub(crate) is_degraded: bool,
    /// The end of the window, in milliseconds since 1970, if the answer has one.
    pub(crate) reset_ms: Option<u64>,
}

/// A connection that is kept between requests.
#[derive(Debug)]
pub(crate) struct KeptConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// The bytes of a check of one path.
pub(crate) fn check_request(path: &str, user: &str) -> Vec<u8> {
    let body = format!(r#"{{"attributes":{{"path":"{path}","user_id":"{user}"}}}}"#);
    let length = body.len();
    format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

impl KeptConnection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(2_048),
        })
    }

    /// Sends a check and waits for its answer; false if the server closes the connection after it.
    pub(crate) async fn check(&mut self, request: &[u8]) -> anyhow::Result<(CheckAnswer, bool)> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if let Some((head, body)) = split(&self.buffer) {
                let status = status_of(head)?;
                if !matches!(status, 200 | 429 | 503) {
                    bail!("status {status}");
                }
                let is_kept = field(head, "connection") != Some("close");
                return Ok((read_check(body)?, is_kept));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("closed before the answer");
            }
        }
    }
}

/// A kept connection for callers that wait: many of them may be open without a runtime.
#[derive(Debug)]
pub(crate) struct BlockingConnection {
    stream: std::net::TcpStream,
    buffer: Vec<u8>,
}

impl BlockingConnection {
    pub(crate) fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    /// How long an answer may take.
    pub(crate) fn set_patience(&self, patience: Duration) -> anyhow::Result<()> {
        Ok(self.stream.set_read_timeout(Some(patience))?)
    }

    /// Sends a request, waits for its whole answer and returns the status.
    pub(crate) fn ask(&mut self, call: &str, body: &str) -> anyhow::Result<u16> {
        self.send(call, body)?;
        self.status()
    }

    /// Sends a request and does not wait.
    pub(crate) fn send(&mut self, call: &str, body: &str) -> anyhow::Result<()> {
        let length = body.len();
        let head = format!(
            "{call} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        let request = [head.as_bytes(), body.as_bytes()].concat();
        Ok(self.stream.write_all(&request)?)
    }

    /// Waits for a whole answer and returns its status.
    pub(crate) fn status(&mut self) -> anyhow::Result<u16> {
        self.buffer.clear();
        loop {
            let filled = self.buffer.len();
            self.buffer.resize(filled + filled.max(4_096), 0);
            let read = self.stream.read(&mut self.buffer[filled..])?;
            self.buffer.truncate(filled + read);
            if let Some((head, _)) = split(&self.buffer) {
                return status_of(head);
            }
            if read == 0 {
                bail!("closed before the answer");
            }
        }
    }
}

/// Sends one request over a new connection, and returns status and body.
pub(crate) fn ask(
    address: SocketAddr,
    call: &str,
    token: Option<&str>,
    body: &str,
) -> anyhow::Result<(u16, String)> {
    let mut stream = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    let length = body.len();
    write!(
        stream,
        "{call} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{token}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let (head, body) = split(&answer).context("an answer with a length")?;
    Ok((status_of(head)?, String::from_utf8_lossy(body).into_owned()))
}

/// Head and body, once both are there. Bodies have a length: no call of the suite is answered in chunks.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let length: usize = field(head, "content-length")?.parse().ok()?;
    let body = &bytes[end + 4..];
    (body.len() >= length).then(|| (head, &body[..length]))
}

fn status_of(head: &str) -> anyhow::Result<u16> {
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.ok_or_else(|| anyhow!("an answer without a status"))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let found = fields.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value)
}

/// The first of each field belongs to the decision itself; those of its limits follow.
fn read_check(body: &[u8]) -> anyhow::Result<CheckAnswer> {
    let text = std::str::from_utf8(body)?;
    let value = |name: &str| {
        let (_, rest) = text.split_once(name)?;
        rest.split([',', '}']).next()
    };
    let is_true = |name| match value(name) {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        _ => Err(anyhow!("not a decision: {text:.200}")),
    };
    let seconds = value("\"reset_time\":").unwrap_or("null");
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let reset_ms = whole.parse::<u64>().ok().map(|whole| {
        let millis: String = part.chars().chain("000".chars()).take(3).collect();
        whole * 1_000 + millis.parse::<u64>().unwrap_or(0)
    });
    Ok(CheckAnswer {
        is_allowed: is_true("\"allowed\":")?,
        is_degraded: is_true("\"degraded\":")?,
        reset_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_read_from_its_answer() {
        let head = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 83\r\nConnection: close";
        let body = r#"{"allowed":false,"rule":"r","reset_time":1794792452.4,"degraded":true,"limits":[]}x"#;
        let answer = format!("{head}\r\n\r\n{body}");
        let (head, body) = split(answer.as_bytes()).unwrap();
        assert_eq!(status_of(head).unwrap(), 429);
        assert_eq!(field(head, "connection"), Some("close"));
        let expected = CheckAnswer {
            is_allowed: false,
            is_degraded: true,
            reset_ms: Some(1_794_792_452_400),
        };
        assert_eq!(read_check(body).unwrap(), expected);
        assert!(split(&answer.as_bytes()[..answer.len() - 1]).is_none());
        assert!(read_check(b"{\"status\":503}").is_err());
    }
}
