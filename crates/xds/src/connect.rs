//! Opens a connection: TCP, TLS if it is used, and HTTP/2.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tidegate_listen::client_tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::error::XdsError;
use crate::outgoing::Outgoing;
use crate::settings::{XdsSettings, XdsTls};
use crate::watched::{ConnectionFailure, Watched};

/// How often the server is pinged, and how long it may take to answer.
const PING: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(10);

/// A connection. Its task ends when this is dropped.
pub(crate) struct ServerConnection {
    pub(crate) sender: SendRequest<Outgoing>,
    /// How it failed, once it has.
    pub(crate) failure: ConnectionFailure,
    task: JoinHandle<()>,
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn connect(settings: &XdsSettings) -> Result<ServerConnection, XdsError> {
    let server = &settings.server;
    let tls = match &settings.tls {
        Some(tls) => Some(tls.configuration().await?),
        None => None,
    };
    let stream = TcpStream::connect((server.host(), server.port())).await;
    let stream = stream.map_err(XdsError::Unreachable)?;
    stream.set_nodelay(true).map_err(XdsError::Unreachable)?;
    let (Some(tls), Some(configuration)) = (&settings.tls, tls) else {
        return open_http2(stream).await;
    };
    let name = tls.server_name.as_deref().unwrap_or(server.host());
    let name = ServerName::try_from(name.to_owned())
        .map_err(|error| XdsError::Unreachable(io::Error::other(error)))?;
    let connector = TlsConnector::from(Arc::new(configuration));
    let stream = connector.connect(name, stream).await;
    open_http2(stream.map_err(|error| tls.explain(error))?).await
}

async fn open_http2<T>(io: T) -> Result<ServerConnection, XdsError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failure = ConnectionFailure::default();
    let io = Watched {
        io,
        failure: failure.clone(),
    };
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING_ANSWER)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(io))
        .await
        .map_err(|error| XdsError::Lost(with_sources(&error)))?;
    let task = tokio::spawn(async move {
        // Its streams get the error.
        let _ = connection.await;
    });
    Ok(ServerConnection {
        sender,
        failure,
        task,
    })
}

impl XdsTls {
    /// Reads the files.
    async fn configuration(&self) -> Result<ClientConfig, XdsError> {
        let tls = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let identity = tls.identity.as_ref();
            let identity = identity.map(|(certificate, key)| (&**certificate, &**key));
            client_tls::presenting(tls.authorities.as_deref(), identity)
        });
        // The task does not panic; it is cancelled only with the whole program.
        let read = reading.await;
        let mut configuration = read.map_err(|error| XdsError::Lost(error.to_string()))??;
        configuration.alpn_protocols = vec![b"h2".to_vec()];
        Ok(configuration)
    }

    /// Why a handshake failed.
    fn explain(&self, error: io::Error) -> XdsError {
        let cause = error.get_ref();
        match cause.and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::AlertReceived(alert)) => self.refused_by_server(&format!(
                "the server refused the connection with the alert {alert:?}"
            )),
            Some(cause) => XdsError::CertificateRefused {
                reason: cause.to_string(),
                files: match &self.authorities {
                    Some(path) => format!("the authorities in `{}`", path.display()),
                    None => "the authorities: only the public ones are trusted".to_owned(),
                },
            },
            None => XdsError::Unreachable(error),
        }
    }

    /// What the server may have against this client.
    pub(crate) fn refused_by_server(&self, reason: &str) -> XdsError {
        XdsError::CertificateRefused {
            reason: reason.to_owned(),
            files: match &self.identity {
                Some((certificate, _)) => {
                    format!("the client certificate in `{}`", certificate.display())
                }
                None => "whether the server requires a client certificate: none is set".to_owned(),
            },
        }
    }
}

/// An error with its sources, of which the last says most.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = inner.source();
    }
    text
}
