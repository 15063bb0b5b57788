//! One HTTP request to a configured server, on a connection of its own. How long it may take is the caller's to say:
//! the connection ends when the call is dropped.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client_tls::trusting;
use crate::{HttpUrl, TlsError};

/// Why a call got no answer.
pub type HttpCallError = Box<dyn Error + Send + Sync>;

/// Calls HTTP servers.
#[derive(Clone)]
pub struct HttpCaller {
    /// The authorities that it trusts, if not the public ones.
    authorities: Option<PathBuf>,
    tls: Arc<ArcSwap<ClientConfig>>,
    /// The addresses that are called without TLS.
    in_plain_text: fn(IpAddr) -> bool,
}

impl HttpCaller {
    /// A caller that trusts the authorities in a PEM file; by default the public ones. Without TLS it calls only the
    /// addresses that `in_plain_text` allows, whatever a name resolves to.
    pub fn new(
        authorities: Option<&Path>,
        in_plain_text: fn(IpAddr) -> bool,
    ) -> Result<Self, TlsError> {
        let tls = Arc::new(ArcSwap::new(trusting_http1(authorities)?));
        Ok(Self {
            authorities: authorities.map(Path::to_owned),
            tls,
            in_plain_text,
        })
    }

    /// Reads the authorities again, for later calls. After an error the previous ones stay in use.
    pub fn reload_authorities(&self) -> Result<(), TlsError> {
        self.tls.store(trusting_http1(self.authorities.as_deref())?);
        Ok(())
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
        let tls = TlsConnector::from(self.tls.load_full());
        exchange(tls.connect(name, stream).await?, request, most).await
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

fn trusting_http1(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = trusting(authorities)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
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
