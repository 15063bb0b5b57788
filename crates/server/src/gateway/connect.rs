//! Connections to the servers behind the gateway: TCP, TLS where it is asked for, and the version of HTTP
//! that both ends speak.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::request_body::RequestBody;
use super::upstream::Upstream;
use crate::config::UpstreamScheme;
use crate::listen::TlsError;

/// How often an HTTP/2 server that has requests is asked whether it is still there.
const PING: Duration = Duration::from_secs(20);

/// Makes connections.
pub(super) struct Connector {
    /// Offers HTTP/2 and HTTP/1.1.
    any: TlsConnector,
    /// Offers HTTP/1.1 only, for requests that change the protocol.
    http1: TlsConnector,
}

/// A connection that stands.
pub(super) enum Connected {
    Http1(Http1),
    Http2(http2::SendRequest<RequestBody>),
}

/// A failed sending, with the request if it has certainly not left.
pub(super) type NotSent = TrySendError<Request<RequestBody>>;

impl Connector {
    pub(super) fn new(authorities: Option<&[u8]>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        match authorities {
            // They were read before, when the configuration was.
            Some(pem) => {
                let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
                roots.add_parsable_certificates(certificates);
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(TlsError::Setup)?
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = TlsConnector::from(Arc::new(config.clone()));
        config.alpn_protocols.insert(0, b"h2".to_vec());
        let any = TlsConnector::from(Arc::new(config));
        Ok(Self { any, http1 })
    }

    /// A new connection to a server.
    pub(super) async fn connect(
        &self,
        upstream: &Upstream,
        needs_http1: bool,
    ) -> io::Result<Connected> {
        let url = &upstream.url;
        let stream = TcpStream::connect((url.host.as_str(), url.port)).await?;
        stream.set_nodelay(true)?;
        match url.scheme {
            UpstreamScheme::Http => Http1::open(stream).await.map(Connected::Http1),
            UpstreamScheme::H2c if needs_http1 => Err(io::Error::other(
                "a server that is spoken to by HTTP/2 alone takes no upgrades",
            )),
            UpstreamScheme::H2c => open_http2(stream).await.map(Connected::Http2),
            UpstreamScheme::Https => {
                let name = ServerName::try_from(url.host.clone()).map_err(io::Error::other)?;
                let connector = if needs_http1 { &self.http1 } else { &self.any };
                let stream = connector.connect(name, stream).await?;
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    return open_http2(stream).await.map(Connected::Http2);
                }
                Http1::open(stream).await.map(Connected::Http1)
            }
        }
    }
}

async fn open_http2<T>(io: T) -> io::Result<http2::SendRequest<RequestBody>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .adaptive_window(true)
        .handshake(TokioIo::new(io))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a server behind the gateway ended");
        }
    });
    Ok(sender)
}

/// An HTTP/1.1 connection. It works only while one who waits for it polls it: the request and its answer
/// stay in the task of the client's connection.
pub(super) struct Http1 {
    sender: http1::SendRequest<RequestBody>,
    driver: Option<Driver>,
}

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

impl Http1 {
    async fn open<T>(io: T) -> io::Result<Self>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = http1::Builder::new().handshake(TokioIo::new(io));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        Ok(Self {
            sender,
            driver: Some(Box::pin(connection.with_upgrades())),
        })
    }

    /// Lets the connection read and write what it can.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && driver.as_mut().poll(cx).is_ready()
        {
            self.driver = None;
        }
    }

    /// Whether the next request can be sent.
    pub(super) fn is_free(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Sends a request, and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, NotSent> {
        let mut answer = std::pin::pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            if let Some(driver) = &mut self.driver
                && driver.as_mut().poll(cx).is_ready()
            {
                self.driver = None;
            }
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Leaves the connection to a task of its own, which ends when its protocol has changed.
    pub(super) fn let_go(self) {
        if let Some(driver) = self.driver {
            let sender = self.sender;
            tokio::spawn(async move {
                if let Err(error) = driver.await {
                    tracing::debug!(%error, "a connection to a server behind the gateway ended");
                }
                drop(sender);
            });
        }
    }
}

/// The same over HTTP/2, where the connection has a task of its own.
pub(super) async fn send_http2(
    sender: &mut http2::SendRequest<RequestBody>,
    request: Request<RequestBody>,
) -> Result<Response<Incoming>, NotSent> {
    sender.try_send_request(request).await
}
