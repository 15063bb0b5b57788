//! A service behind a proxy. It answers everything, and remembers what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The headers that the service sends itself for paths that end in `/own`, all with the same value.
pub const OWN_HEADERS: [&str; 6] = [
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit",
    "ratelimit-policy",
];
/// The value of those headers.
pub const OWN_VALUE: &str = "77";

/// The beginning of a response that never ends.
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nd\r\ndata: first\n\n\r\n";

/// The service. Its threads end with the process.
#[derive(Debug)]
pub struct RecordingUpstream {
    /// Where it listens.
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl RecordingUpstream {
    /// On a free port of 127.0.0.1.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::default();
        let remembered = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let remembered = Arc::clone(&remembered);
                thread::spawn(move || serve(stream, &remembered));
            }
        });
        Self { address, heads }
    }

    /// The heads of the requests for a path, in lower case.
    pub fn heads(&self, path: &str) -> Vec<String> {
        let heads = self.heads.lock().unwrap();
        let is_for = |head: &&String| head.split(' ').nth(1) == Some(path);
        heads.iter().filter(is_for).cloned().collect()
    }
}

fn serve(stream: TcpStream, remembered: &Mutex<Vec<String>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let read = stream.read_until(b'\n', &mut head);
            if !read.is_ok_and(|length| length > 0) {
                return;
            }
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let reply = reply(head.split(' ').nth(1).unwrap_or_default());
        remembered.lock().unwrap().push(head);
        if stream.get_mut().write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn reply(path: &str) -> String {
    if path.ends_with("/stream") {
        return STREAM.to_owned();
    }
    let status = if path.ends_with("/forbidden") {
        "403 Forbidden"
    } else {
        "200 OK"
    };
    let own = OWN_HEADERS.map(|name| format!("{name}: {OWN_VALUE}\r\n"));
    let own = if path.ends_with("/own") {
        own.concat()
    } else {
        String::new()
    };
    format!("HTTP/1.1 {status}\r\n{own}content-length: 6\r\n\r\nserved")
}
