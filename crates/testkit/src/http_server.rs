//! A small HTTP server that answers each path as a test says, and remembers what it was asked.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a server that cannot be started has failed the test"
)]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::redis::Certificates;

/// Longer than any client of a test waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// The server. Ends when it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    shared: Arc<HttpServerShared>,
}

#[derive(Debug, Default)]
struct HttpServerShared {
    answers: Mutex<HashMap<String, HttpAnswer>>,
    asked: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

/// What a path answers.
#[derive(Debug, Clone)]
pub struct HttpAnswer {
    status: u16,
    headers: String,
    body: Vec<u8>,
    is_silent: bool,
}

impl HttpAnswer {
    /// A status and nothing else.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: String::new(),
            body: Vec::new(),
            is_silent: false,
        }
    }

    /// 200 with this body.
    pub fn body(body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            ..Self::status(200)
        }
    }

    /// No answer at all: the connection stays open.
    pub fn silence() -> Self {
        Self {
            is_silent: true,
            ..Self::status(200)
        }
    }

    /// The same with another header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        // Writing to a String cannot fail.
        let _ = write!(self.headers, "{name}: {value}\r\n");
        self
    }
}

impl HttpServer {
    /// In plain text on a free port of 127.0.0.1. Every path is 404 until it is said otherwise.
    pub fn start() -> Self {
        Self::start_on(None)
    }

    /// The same with TLS.
    pub fn with_tls(certificates: &Certificates) -> Self {
        let chain = CertificateDer::pem_file_iter(&certificates.server).expect("a certificate");
        let chain = chain.collect::<Result<_, _>>().expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(&certificates.server_key).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the usual versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate and its key");
        Self::start_on(Some(Arc::new(config)))
    }

    fn start_on(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(HttpServerShared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.is_over.load(Ordering::Acquire) {
                    return;
                }
                let (shared, tls) = (Arc::clone(&serving), tls.clone());
                // A client that goes away in between is no failure of a test.
                thread::spawn(move || shared.serve(stream, tls));
            }
        });
        Self { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this is what a path answers, query included.
    pub fn answer(&self, path: &str, answer: HttpAnswer) {
        lock(&self.shared.answers).insert(path.to_owned(), answer);
    }

    /// The paths that it was asked for so far, in their order.
    pub fn asked(&self) -> Vec<String> {
        lock(&self.shared.asked).clone()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // Wakes the thread that listens.
        let _ = TcpStream::connect(self.address);
    }
}

impl HttpServerShared {
    fn serve(&self, stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        match tls {
            None => self.exchange(stream),
            Some(config) => {
                let connection = ServerConnection::new(config).map_err(io::Error::other)?;
                self.exchange(StreamOwned::new(connection, stream))
            }
        }
    }

    fn exchange(&self, stream: impl Read + Write) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        let answer = lock(&self.answers).get(&path).cloned();
        let answer = answer.unwrap_or_else(|| HttpAnswer::status(404));
        lock(&self.asked).push(path);
        if answer.is_silent {
            // Until the client gives up.
            return stream.read_to_end(&mut Vec::new()).map(drop);
        }
        let (status, length) = (answer.status, answer.body.len());
        let head = format!(
            "HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\nconnection: close\r\n{}\r\n",
            answer.headers
        );
        let stream = stream.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(&answer.body)?;
        stream.flush()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
