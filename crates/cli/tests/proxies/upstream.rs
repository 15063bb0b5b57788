//! A service behind a proxy. It answers everything, and remembers what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
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
    pub(crate) fn heads(&self, path: &str) -> Vec<String> {
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
        let is_forbidden = head.contains(" /forbidden ");
        remembered.lock().unwrap().push(head);
        let status = if is_forbidden {
            "403 Forbidden"
        } else {
            "200 OK"
        };
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 6\r\n\r\nserved");
        if stream.get_mut().write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}
