//! Makes connections: TCP, TLS and sockets, logged in and named.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, TlsCertificates,
};

use crate::settings::RedisSettings;
use crate::url::Node;

/// Makes connections as the settings say. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    settings: Arc<RedisSettings>,
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A server with data.
    Server,
    /// A sentinel, with a login of its own and no databases.
    Sentinel,
}

impl Dialer {
    pub(crate) fn new(settings: Arc<RedisSettings>) -> Self {
        // Taken already if the program chose one itself, which is as good.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Self { settings }
    }

    /// The time that a connection may take to be made.
    pub(crate) fn timeout(&self) -> Duration {
        self.settings.connect_timeout
    }

    /// A connection that many may use at once.
    pub(crate) async fn dial(
        &self,
        node: &Node,
        role: Role,
    ) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.settings.connect_timeout))
            // Whoever asks has a deadline of their own.
            .set_response_timeout(None);
        let dialing = self.client(node, role)?;
        let dialing = dialing.get_multiplexed_async_connection_with_config(&config);
        // The library's own timeout does not cover the login.
        within(self.settings.connect_timeout, dialing).await
    }

    /// A connection that hears messages.
    pub(crate) async fn listen(&self, node: &Node, role: Role) -> Result<PubSub, RedisError> {
        let client = self.client(node, role)?;
        within(self.settings.connect_timeout, client.get_async_pubsub()).await
    }

    fn client(&self, node: &Node, role: Role) -> Result<Client, RedisError> {
        let settings = &self.settings;
        let addr = match node {
            Node::Unix(path) => ConnectionAddr::Unix(path.clone()),
            Node::Tcp { host, port } if settings.url.is_tls => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
            Node::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
        };
        let mut login = RedisConnectionInfo::default();
        let (user, password) = match role {
            Role::Server => (settings.user(), settings.password()),
            Role::Sentinel => (
                settings.sentinel_user.as_deref(),
                settings.sentinel_password.as_deref(),
            ),
        };
        if let Some(user) = user {
            login = login.set_username(user);
        }
        if let Some(password) = password {
            login = login.set_password(password);
        }
        if role == Role::Server {
            login = login.set_db(settings.url.database);
        }
        let info: ConnectionInfo = addr.into_connection_info()?;
        let info = info
            .set_redis_settings(login.set_lib_name("tidegate", env!("CARGO_PKG_VERSION")))
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        if !settings.url.is_tls {
            return Client::open(info);
        }
        let client_tls = match (&settings.tls.cert, &settings.tls.key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig {
                client_cert: cert.clone(),
                client_key: key.clone(),
            }),
            _ => None,
        };
        let certificates = TlsCertificates {
            client_tls,
            root_cert: settings.tls.ca.clone(),
        };
        Client::build_with_tls(info, certificates)
    }
}

/// The future's result, or an error if it takes longer.
pub(crate) async fn within<T>(
    timeout: Duration,
    doing: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    match tokio::time::timeout(timeout, doing).await {
        Ok(done) => done,
        Err(_) => Err(RedisError::from(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            format!("no answer within {timeout:?}"),
        ))),
    }
}
