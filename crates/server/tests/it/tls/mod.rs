//! HTTP over TLS with real clients: certificates that they must present, and files that are renewed.

mod client_certificates;
mod renewed_files;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const RULES: &str = "rules: [{id: all, per: [], limit: 1000/23h}]";

/// An authority that issues certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for this name and its key, as PEM.
    pub(crate) fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes a certificate for `localhost` and its key as `tls.crt` and `tls.key`, as Kubernetes names them.
    fn issue_into(&self, folder: &Path) {
        let (certificate, key) = self.issue("localhost");
        std::fs::write(folder.join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.join("tls.key"), key).unwrap();
    }
}

/// A client that trusts one authority, and presents a certificate if it has one.
#[derive(Clone)]
struct TlsClient(Arc<ClientConfig>);

/// The protocols that a client can ask for.
const PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"h2"];

impl TlsClient {
    fn new(trusted: &Authority, identity: Option<&Authority>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            Some(authority) => {
                let (certificate, key) = authority.issue("client");
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                let with_identity = builder.with_client_auth_cert(vec![certificate], key);
                with_identity.unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        Self(Arc::new(config)).speaking(b"http/1.1")
    }

    /// The same client with this protocol.
    fn speaking(mut self, protocol: &[u8]) -> Self {
        Arc::make_mut(&mut self.0).alpn_protocols = vec![protocol.to_vec()];
        self
    }

    async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::clone(&self.0));
        connector.connect(name, stream).await
    }

    /// The status and the body of an answer to a call such as `GET /healthz`; `None` if the client is refused before
    /// it is answered.
    fn ask(&self, address: SocketAddr, call: &str) -> Option<(u16, String)> {
        let asking = async {
            let mut connection = self.open(address).await?;
            connection.ask(call).await
        };
        runtime().block_on(asking)
    }

    async fn open(&self, address: SocketAddr) -> Option<TlsConnection> {
        let stream = self.connect(address).await.ok()?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = TokioIo::new(stream);
        if is_http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.ok()?;
            tokio::spawn(connection);
            return Some(TlsConnection::Http2(sender));
        }
        let (sender, connection) = http1::handshake(stream).await.ok()?;
        tokio::spawn(connection);
        Some(TlsConnection::Http1(sender))
    }
}

/// An open connection.
enum TlsConnection {
    Http1(http1::SendRequest<Full<bytes::Bytes>>),
    Http2(http2::SendRequest<Full<bytes::Bytes>>),
}

impl TlsConnection {
    async fn ask(&mut self, call: &str) -> Option<(u16, String)> {
        let (method, path) = call.split_once(' ').unwrap();
        let body = if method == "GET" {
            ""
        } else {
            r#"{"attributes": {}}"#
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header("host", "localhost")
            .body(Full::from(body))
            .unwrap();
        let answer: Response<Incoming> = match self {
            Self::Http1(sender) => sender.send_request(request).await.ok()?,
            Self::Http2(sender) => sender.send_request(request).await.ok()?,
        };
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        Some((status, String::from_utf8(body.to_vec()).unwrap()))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap()
}
