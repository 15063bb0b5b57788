//! One HTTP request to a configured server, on a connection of its own. How long it may take is the caller's to say:
//! the connection ends when the call is dropped.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::HttpUrl;
use crate::client_tls::trusting;

/// Why a call got no answer.
pub type HttpCallError = Box<dyn Error + Send + Sync>;

/// Calls HTTP servers.
#[derive(Clone)]
pub struct HttpCaller {
    tls: TlsConnector,
    /// The addresses that are called without TLS.
    in_plain_text: fn(IpAddr) -> bool,
}

impl HttpCaller {
    /// A caller that trusts these authorities, in PEM form; by default the public ones. Without TLS it calls only the
    /// addresses that `in_plain_text` allows, whatever a name resolves to.
    pub fn new(
        authorities: Option<&[u8]>,
        in_plain_text: fn(IpAddr) -> bool,
    ) -> Result<Self, rustls::Error> {
        let mut config = trusting(authorities)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Self { tls, in_plain_text })
    }

    /// Sends a request to the server of `url`, and reads the body of a successful answer up to `most` bytes. Uses the
    /// path of the request.
    pub async fn call(
        &self,
        url: &HttpUrl,
        mut request: Request<Full<Bytes>>,
        most: usize,
    ) -> Result<Response<Bytes>, HttpCallError> {
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(url.authority.as_str())?);
        let agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let stream = self.connect(url).await?;
        if !url.is_tls {
            return exchange(stream, request, most).await;
        }
        let name = ServerName::try_from(url.host.clone())?;
        exchange(self.tls.connect(name, stream).await?, request, most).await
    }

    async fn connect(&self, url: &HttpUrl) -> io::Result<TcpStream> {
        let addresses = tokio::net::lookup_host((url.host.as_str(), url.port)).await?;
        let mut last = None;
        for address in addresses.filter(|to| url.is_tls || (self.in_plain_text)(to.ip())) {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::other("the host has no usable address")))
    }
}

async fn exchange<T>(
    stream: T,
    request: Request<Full<Bytes>>,
    most: usize,
) -> Result<Response<Bytes>, HttpCallError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let asking = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        if !head.status.is_success() {
            return Ok(Response::from_parts(head, Bytes::new()));
        }
        match Limited::new(body, most).collect().await {
            Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(format!("its answer has more than {most} bytes").into())
            }
            Err(error) => Err(error),
        }
    };
    // Driven by this task, so that a timeout drops it.
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => answer,
        ended = connection => {
            ended?;
            // Received bytes are read to the end.
            asking.await
        }
    }
}
