//! Servers to stand behind the gateway: one that writes down every byte, and one that answers by script.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use tidegate_testkit::{RawConnection, within};

/// Accepts connections and hands them to the test.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    accepted: mpsc::UnboundedReceiver<TcpStream>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            // Until the test lets go of it.
            while let Ok((stream, _)) = listener.accept().await {
                if sender.send(stream).is_err() {
                    return;
                }
            }
        });
        Self { address, accepted }
    }

    /// The next connection.
    pub(crate) async fn accept(&mut self) -> RawConnection {
        let stream = within(self.accepted.recv()).await.unwrap();
        RawConnection { stream }
    }

    /// Whether there was no connection.
    pub(crate) fn is_unasked(&mut self) -> bool {
        self.accepted.try_recv().is_err()
    }
}

/// Answers every request with 200 and its own head as the body; every byte is written down.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    pub(crate) async fn start() -> Self {
        let mut upstream = Upstream::start().await;
        let (address, bytes) = (upstream.address, Arc::new(Mutex::default()));
        let written = Arc::clone(&bytes);
        tokio::spawn(async move {
            while let Some(stream) = upstream.accepted.recv().await {
                tokio::spawn(record(stream, Arc::clone(&written)));
            }
        });
        Self { address, bytes }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock()).into_owned()
    }
}

async fn record(mut stream: TcpStream, bytes: Arc<Mutex<Vec<u8>>>) {
    let mut head = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        bytes.lock().push(byte);
        head.push(byte);
        if head.ends_with(b"\r\n\r\n") {
            let length = head.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            if stream
                .write_all(&[answer.as_bytes(), &head].concat())
                .await
                .is_err()
            {
                return;
            }
            head.clear();
        }
    }
}
