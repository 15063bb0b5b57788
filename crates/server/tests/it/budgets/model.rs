//! A language model that begins its answer immediately, and ends it when the test says what it used.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use tidegate_testkit::header;

/// The head of an answer and its first event.
const BEGIN: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const FIRST: &str = "data: {\"choices\":[{\"delta\":{}}],\"usage\":null}\n\n";

/// Calls that are not answered to their end, by their header `x-call`.
type BegunCalls = Arc<Mutex<HashMap<String, Sender<u64>>>>;

/// The model. Its threads end with the process.
pub(super) struct Model {
    pub(super) address: SocketAddr,
    begun: BegunCalls,
}

impl Model {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let begun = BegunCalls::default();
        let calls = Arc::clone(&begun);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let calls = Arc::clone(&calls);
                thread::spawn(move || serve(stream, &calls));
            }
        });
        Self { address, begun }
    }

    /// Ends the answer of a call: it used so many tokens.
    pub(super) fn end(&self, call: &str, used: u64) {
        let begun = self.begun.lock().unwrap().remove(call).unwrap();
        begun.send(used).unwrap();
    }
}

/// Bytes as a chunk.
fn chunk(text: &str) -> String {
    format!("{:X}\r\n{text}\r\n", text.len())
}

fn serve(stream: TcpStream, begun: &BegunCalls) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let length = stream.read_line(&mut head).ok()?;
            (length > 0).then_some(())?;
        }
        let length = header(&head, "content-length").unwrap().parse().unwrap();
        stream.read_exact(&mut vec![0; length]).ok()?;
        let (sender, used) = channel();
        let call = header(&head, "x-call").unwrap().to_owned();
        begun.lock().unwrap().insert(call, sender);
        let started = format!("{BEGIN}{}", chunk(FIRST));
        stream.get_mut().write_all(started.as_bytes()).ok()?;
        let used = used.recv().ok()?;
        let usage = format!(
            "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{}}}}}\n\ndata: [DONE]\n\n",
            used - 5
        );
        let end = format!("{}0\r\n\r\n", chunk(&usage));
        stream.get_mut().write_all(end.as_bytes()).ok()?;
    }
}
