//! Connections to a server, in clear or over TLS.

use std::pin::Pin;
use std::sync::Arc;

use http::Uri;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::LoadRunError;

/// Bytes in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> ByteStream for T {}

/// A connection.
pub(crate) type LoadConnection = Pin<Box<dyn ByteStream>>;

/// Where a server listens, and whether it expects TLS.
#[derive(Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// What a server with TLS is reached with.
#[derive(Default)]
pub struct LoadTls {
    /// The authorities that its certificate may be of; by default the public ones.
    pub roots: Option<RootCertStore>,
    /// The certificate to present, with its chain, and its key.
    pub identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

impl Endpoint {
    /// The server of a URL, `http` or `https`.
    pub fn of_url(url: &Uri, tls: LoadTls) -> Result<Self, LoadRunError> {
        let invalid = |reason: &str| LoadRunError::Address {
            address: url.to_string(),
            reason: reason.to_owned(),
        };
        let has_tls = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(invalid("it must begin with `http://` or `https://`")),
        };
        let host = url.host().ok_or_else(|| invalid("it names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = url.port_u16().unwrap_or(if has_tls { 443 } else { 80 });
        let tls = if has_tls {
            let name = ServerName::try_from(host.to_owned());
            let name = name.map_err(|_| invalid("its host cannot have a certificate"))?;
            Some((Arc::new(client_config(tls)?), name))
        } else {
            None
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            tls,
        })
    }

    /// The server at `host:port`, without TLS.
    pub fn of_address(address: &str) -> Result<Self, LoadRunError> {
        let url = format!("http://{address}").parse::<Uri>();
        let is_plain = |url: &Uri| url.port_u16().is_some() && matches!(url.path(), "" | "/");
        match url {
            Ok(url) if is_plain(&url) => Self::of_url(&url, LoadTls::default()),
            _ => Err(LoadRunError::Address {
                address: address.to_owned(),
                reason: "write it as HOST:PORT, for example `127.0.0.1:6380`".to_owned(),
            }),
        }
    }

    /// The same server, reached with this protocol of HTTP over TLS.
    pub(crate) fn with_protocol(mut self, protocol: &[u8]) -> Self {
        if let Some((config, _)) = &mut self.tls {
            Arc::make_mut(config).alpn_protocols = vec![protocol.to_vec()];
        }
        self
    }

    /// `host:port`.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(crate) async fn connect(&self) -> Result<LoadConnection, LoadRunError> {
        let failed = |source| LoadRunError::Connect {
            address: self.authority(),
            source,
        };
        let stream = TcpStream::connect((self.host.as_str(), self.port));
        let stream = stream.await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let Some((config, name)) = &self.tls else {
            return Ok(Box::pin(stream));
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name.clone(), stream).await;
        Ok(Box::pin(stream.map_err(failed)?))
    }
}

fn client_config(tls: LoadTls) -> Result<ClientConfig, LoadRunError> {
    let unusable = |error| LoadRunError::Invalid(format!("TLS cannot be used: {error}"));
    let LoadTls { roots, identity } = tls;
    let roots = roots.unwrap_or_else(|| webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots);
    match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(unusable),
        None => Ok(builder.with_no_client_auth()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (address, authority) in [
            ("127.0.0.1:6380", "127.0.0.1:6380"),
            ("localhost:1", "localhost:1"),
            ("[::1]:80", "[::1]:80"),
        ] {
            let endpoint = Endpoint::of_address(address).unwrap();
            assert_eq!(endpoint.authority(), authority);
        }
        for bad in [
            "",
            "6380",
            "localhost",
            "a:b",
            "localhost:1/path",
            "host:99999",
        ] {
            assert!(Endpoint::of_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_url_decides_about_tls_and_the_port() {
        let endpoint = |url: &str| Endpoint::of_url(&url.parse().unwrap(), LoadTls::default());
        assert_eq!(
            endpoint("http://a.example/x").unwrap().authority(),
            "a.example:80"
        );
        let secure = endpoint("https://a.example").unwrap();
        assert_eq!(
            (secure.authority().as_str(), secure.scheme()),
            ("a.example:443", "https")
        );
        assert!(endpoint("ftp://a.example").is_err());
        assert!(endpoint("/path").is_err());
    }
}
