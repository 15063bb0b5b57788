//! A responder of the Redis protocol: finds the end of each command and answers with a number.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub async fn serve() {
    let listener = crate::listen("resp").await;
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(answer(stream));
        }
    }
}

/// Answers all commands that have arrived with one write.
async fn answer(mut stream: TcpStream) {
    let mut received = Vec::with_capacity(16 * 1024);
    let mut replies = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut received).await {
        let mut at = 0;
        while let Some(length) = command_length(&received[at..]) {
            at += length;
            replies.extend_from_slice(b":1\r\n");
        }
        received.drain(..at);
        if stream.write_all(&replies).await.is_err() {
            return;
        }
        replies.clear();
    }
}

/// The length of the command at the start, if all of it is there.
fn command_length(bytes: &[u8]) -> Option<usize> {
    let (words, mut at) = number(bytes, b'*')?;
    for _ in 0..words {
        let (length, head) = number(&bytes[at..], b'$')?;
        at += head + length + 2;
        if at > bytes.len() {
            return None;
        }
    }
    Some(at)
}

/// The number of a line that begins with `kind`, and the length of the line.
fn number(bytes: &[u8], kind: u8) -> Option<(usize, usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    if bytes.len() < end + 2 {
        return None;
    }
    assert_eq!(bytes[0], kind, "an array of bulk strings");
    let digits = std::str::from_utf8(&bytes[1..end]).ok()?;
    Some((digits.parse().ok()?, end + 2))
}
