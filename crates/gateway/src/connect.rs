//! Opens connections to the servers behind the gateway: TCP, TLS if configured, and the negotiated HTTP version.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tidegate_listen::TlsError;
use tidegate_listen::client_tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::capacity::OpenConnection;
use crate::http1::{Http1, Stream};
use crate::request_body::RequestBody;
use crate::upstream::Upstream;
use crate::upstream_url::UpstreamScheme;

/// How often an HTTP/2 server with requests in flight is pinged.
const PING: Duration = Duration::from_secs(20);

/// How much of one answer a server may send over HTTP/2 before the client reads it, and of all answers: unread
/// answers must not block the others.
const STREAM_WINDOW: u32 = 64 * 1024 - 1;
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// Opens connections.
pub(crate) struct Connector {
    /// The authorities that it trusts, if not the public ones.
    authorities: Option<PathBuf>,
    tls: ArcSwap<UpstreamTls>,
}

/// How servers with TLS are reached.
struct UpstreamTls {
    /// Offers HTTP/2 and HTTP/1.1.
    any: TlsConnector,
    /// Offers HTTP/1.1 only, for requests that change the protocol.
    http1: TlsConnector,
}

/// An open connection.
pub(crate) enum Connected {
    Http1(Box<Http1>),
    Http2(http2::SendRequest<RequestBody>),
}

/// A failed send, with the request if certainly nothing of it was sent.
pub(crate) type NotSent = TrySendError<Request<RequestBody>>;

impl Connector {
    pub(crate) fn new(authorities: Option<&Path>) -> Result<Self, TlsError> {
        Ok(Self {
            authorities: authorities.map(Path::to_owned),
            tls: ArcSwap::from_pointee(UpstreamTls::trusting(authorities)?),
        })
    }

    /// Reads the authorities again, for new connections.
    pub(crate) fn reload_authorities(&self) -> Result<(), TlsError> {
        let tls = UpstreamTls::trusting(self.authorities.as_deref())?;
        self.tls.store(Arc::new(tls));
        Ok(())
    }

    /// Opens a connection to a server, `counted` while it is open.
    pub(crate) async fn connect(
        &self,
        upstream: &Upstream,
        needs_http1: bool,
        counted: Option<OpenConnection>,
    ) -> io::Result<Connected> {
        let url = &upstream.url;
        let stream = TcpStream::connect((url.host.as_str(), url.port)).await?;
        stream.set_nodelay(true)?;
        match url.scheme {
            UpstreamScheme::Http => {
                let connection = Http1::new(Stream::Plain(stream)).counted(counted);
                Ok(Connected::Http1(connection))
            }
            UpstreamScheme::H2c if needs_http1 => Err(io::Error::other(
                "a server with `h2c://` does not support protocol upgrades",
            )),
            UpstreamScheme::H2c => open_http2(stream, counted).await.map(Connected::Http2),
            UpstreamScheme::Https => {
                let name = ServerName::try_from(url.host.clone()).map_err(io::Error::other)?;
                let tls = self.tls.load_full();
                let connector = if needs_http1 { &tls.http1 } else { &tls.any };
                let stream = connector.connect(name, stream).await?;
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    return open_http2(stream, counted).await.map(Connected::Http2);
                }
                let stream = Stream::Tls(Box::new(stream));
                Ok(Connected::Http1(Http1::new(stream).counted(counted)))
            }
        }
    }
}

impl UpstreamTls {
    fn trusting(authorities: Option<&Path>) -> Result<Self, TlsError> {
        let mut config = client_tls::trusting(authorities)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = TlsConnector::from(Arc::new(config.clone()));
        config.alpn_protocols.insert(0, b"h2".to_vec());
        let any = TlsConnector::from(Arc::new(config));
        Ok(Self { any, http1 })
    }
}

async fn open_http2<T>(
    io: T,
    counted: Option<OpenConnection>,
) -> io::Result<http2::SendRequest<RequestBody>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(TokioIo::new(io))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a server behind the gateway ended");
        }
        drop(counted);
    });
    Ok(sender)
}

/// Sends a request over HTTP/2, whose connection has its own task, and waits for the head of the answer.
pub(crate) async fn send_http2(
    sender: &mut http2::SendRequest<RequestBody>,
    request: Request<RequestBody>,
) -> Result<Response<Incoming>, NotSent> {
    sender.try_send_request(request).await
}
