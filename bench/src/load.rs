//! Load over keep-alive HTTP/1.1, from threads that do nothing else.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

/// Sends `requests` over `connections`, with one in flight on each, and reads every answer.
pub fn load(address: &str, request: &[u8], connections: usize, requests: usize) {
    thread::scope(|scope| {
        // Two threads with half of the connections each, so that the load is no bottleneck.
        for _ in 0..2 {
            scope.spawn(|| drive(address, request, connections / 2, requests / 2));
        }
    });
}

/// All are sent, then all answers are read.
fn drive(address: &str, request: &[u8], connections: usize, requests: usize) {
    let mut streams: Vec<(TcpStream, Replies)> = (0..connections)
        .map(|_| {
            let stream = TcpStream::connect(address).expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            (stream, Replies::default())
        })
        .collect();
    for _ in 0..requests / connections {
        for (stream, _) in &mut streams {
            stream.write_all(request).expect("sent");
        }
        for (stream, replies) in &mut streams {
            assert!(replies.next(stream) > 0, "an answer with a body");
        }
    }
}

/// Reads answers off one connection.
#[derive(Default)]
pub struct Replies {
    buffer: Vec<u8>,
}

impl Replies {
    /// Reads the next answer. The length of its body: anything but a 200 with one ends the benchmark.
    pub fn next(&mut self, stream: &mut TcpStream) -> usize {
        let mut chunk = [0_u8; 4096];
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.buffer[..end]).to_lowercase();
                assert!(head.starts_with("http/1.1 200"), "{head}");
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "))
                    .and_then(|length| length.parse::<usize>().ok())
                    .expect("a length");
                if self.buffer.len() >= end + 4 + length {
                    self.buffer.drain(..end + 4 + length);
                    return length;
                }
            }
            let read = stream.read(&mut chunk).expect("an answer");
            assert!(read > 0, "the server closed the connection");
            self.buffer.extend_from_slice(&chunk[..read]);
        }
    }
}
