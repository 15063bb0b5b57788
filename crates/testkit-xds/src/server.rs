//! The server: its thread, its listener, and the streams that clients open.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_codec::grpc::{MessageBuffer, decode};
use tidegate_listen::Tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::PATIENCE;
use crate::stream::{ScriptedBody, ServedStream};

/// How clients reach it.
#[derive(Debug, Clone)]
pub enum ServedOver {
    /// In plain text.
    Tcp,
    /// With this certificate and key, and certificates of clients that an authority has issued, if it is given.
    Tls {
        /// The certificate.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
        /// The authority of clients.
        clients: Option<PathBuf>,
    },
}

/// A management server. Dropped, it closes all connections.
#[derive(Debug)]
pub struct ManagementServer {
    address: SocketAddr,
    streams: mpsc::Receiver<ServedStream>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ManagementServer {
    /// A server at a free port of this machine.
    pub fn start() -> Self {
        Self::serve(SocketAddr::from(([127, 0, 0, 1], 0)), ServedOver::Tcp)
    }

    /// A server with TLS.
    pub fn with_tls((certificate, key): (PathBuf, PathBuf), clients: Option<&Path>) -> Self {
        let over = ServedOver::Tls {
            certificate,
            key,
            clients: clients.map(Path::to_path_buf),
        };
        Self::serve(SocketAddr::from(([127, 0, 0, 1], 0)), over)
    }

    /// A server at this address. One that was stopped there before is gone.
    pub fn serve(address: SocketAddr, over: ServedOver) -> Self {
        let (opened, streams) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let (sender, bound) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind(address).await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = accept(listener, over, opened) => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            address: bound.recv().unwrap(),
            streams,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until a client opens a stream.
    pub fn stream(&self) -> ServedStream {
        self.streams.recv_timeout(PATIENCE).unwrap()
    }

    /// A stream that a client has opened already.
    pub fn opened(&self) -> Option<ServedStream> {
        self.streams.try_recv().ok()
    }
}

impl Drop for ManagementServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, over: ServedOver, opened: mpsc::Sender<ServedStream>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (over, opened) = (over.clone(), opened.clone());
        tokio::spawn(async move {
            let ServedOver::Tls {
                certificate,
                key,
                clients,
            } = over
            else {
                return serve(stream, opened).await;
            };
            // Read for each connection, as certificates may have been renewed.
            let tls = Tls::load(&certificate, &key).unwrap();
            let tls = match clients {
                Some(authority) => tls.requiring_certificates(&authority).unwrap(),
                None => tls,
            };
            if let Ok(stream) = tls.acceptor().accept(stream).await {
                serve(stream, opened).await;
            }
        });
    }
}

async fn serve<T>(io: T, opened: mpsc::Sender<ServedStream>)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let answer = move |request: Request<Incoming>| {
        let answered = answer(request, &opened);
        async move { Ok::<_, Infallible>(answered) }
    };
    let serving = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(io), service_fn(answer));
    // A client that disconnects ends it with an error.
    let _ = serving.await;
}

fn answer(
    request: Request<Incoming>,
    opened: &mpsc::Sender<ServedStream>,
) -> Response<ScriptedBody> {
    let (head, body) = request.into_parts();
    assert_eq!(head.uri.path(), tidegate_xds::proto::PATH);
    let (sender, requests) = mpsc::channel();
    let (frames, answered) = unbounded_channel();
    tokio::spawn(async move {
        let mut body = body;
        let mut arrived = MessageBuffer::default();
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            if let Ok(data) = frame.into_data() {
                arrived.put(data);
            }
            while let Some(message) = arrived.take().unwrap() {
                let _ = sender.send(decode(message).unwrap());
            }
        }
    });
    // A test that has ended takes no more streams.
    let _ = opened.send(ServedStream {
        requests,
        frames,
        headers: head.headers,
    });
    let mut reply = Response::new(ScriptedBody(answered));
    let media_type = HeaderValue::from_static("application/grpc");
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply
}
