//! A client that speaks HTTP/1 by hand and sees every byte.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::place::within;

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = within(TcpStream::connect(address)).await.unwrap();
        Self { stream }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        within(self.stream.write_all(text.as_bytes()))
            .await
            .unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
            .await;
        self.answer().await
    }

    /// The head of an answer, to its empty line.
    pub(crate) async fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let byte = within(self.stream.read_u8()).await;
            head.push(char::from(byte.unwrap_or_else(|_| panic!("only {head:?}"))));
        }
        head
    }

    pub(crate) async fn bytes(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        within(self.stream.read_exact(&mut bytes)).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// One answer whose body has a length, or none.
    pub(crate) async fn answer(&mut self) -> String {
        let head = self.head().await;
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        let body = self.bytes(length).await;
        head + &body
    }

    /// Reads to the end of the connection, which may come as a reset too.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        within(self.stream.read_to_end(&mut rest)).await.ok();
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// The value of a header, in a head or a whole message.
pub(crate) fn header<'m>(message: &'m str, name: &str) -> Option<&'m str> {
    let head = message.split("\r\n\r\n").next().unwrap();
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
