//! A client in asynchronous tests that speaks HTTP/1.1 by hand and sees every byte.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a connection that fails has failed the test"
)]

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(20);

/// Fails where a test would hang.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future).await.expect("in time")
}

/// Asks every few milliseconds until the answer is yes.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(LONG, waiting).await;
    assert!(done.is_ok(), "not within {LONG:?}: {what}");
}

/// One end of a connection: a client, or a server that a test plays.
#[derive(Debug)]
pub struct RawConnection {
    /// The connection.
    pub stream: TcpStream,
}

impl RawConnection {
    /// A connection to this address.
    pub async fn to(address: SocketAddr) -> Self {
        let stream = within(TcpStream::connect(address)).await;
        let stream = stream.expect("a connection");
        Self { stream }
    }

    /// Sends a text as it is.
    pub async fn send(&mut self, text: &str) {
        let sent = within(self.stream.write_all(text.as_bytes())).await;
        sent.expect("sent");
    }

    /// Sends a request without a body, and returns the answer.
    pub async fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.send(&request).await;
        self.answer().await
    }

    /// Sends 200 with a body.
    pub async fn send_ok(&mut self, body: &str) {
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        self.send(&answer).await;
    }

    /// The head of a message, with its empty line.
    pub async fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let byte = within(self.stream.read_u8()).await;
            head.push(char::from(byte.unwrap_or_else(|_| panic!("only {head:?}"))));
        }
        head
    }

    /// So many bytes.
    pub async fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let read = within(self.stream.read_exact(&mut bytes)).await;
        read.expect("as many bytes");
        bytes
    }

    /// The same as text.
    pub async fn text(&mut self, count: usize) -> String {
        String::from_utf8(self.bytes(count).await).expect("text")
    }

    /// A message whose body has a length, or none.
    pub async fn answer(&mut self) -> String {
        let head = self.head().await;
        let length = header(&head, "content-length").unwrap_or("0");
        let body = self.text(length.parse().expect("a length")).await;
        head + &body
    }

    /// Reads to the end of the connection, which may also be a reset.
    pub async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        within(self.stream.read_to_end(&mut rest)).await.ok();
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// The value of a header, in a head or a whole message.
pub fn header<'m>(message: &'m str, name: &str) -> Option<&'m str> {
    let head = message.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
