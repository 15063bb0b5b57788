//! Makes connections: TCP, TLS and sockets, logged in and named.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::select_ok;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, TlsCertificates,
};

use tidegate_core::StoreError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use crate::arrivals::{Arrivals, WatchedStream};
use crate::backoff::chance;
use crate::settings::{RedisSettings, RedisTls};
use crate::url::RedisNode;

/// How a server is described that neither answers nor refuses.
pub(crate) const NO_ANSWER: &str = "no answer within";

/// Makes connections as the settings say. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dialer {
    settings: Arc<RedisSettings>,
    /// Of the settings, unless others have replaced them.
    tls: Arc<ArcSwap<RedisTls>>,
}

/// The kind of server that a connection leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A server with data.
    Server,
    /// A sentinel, with a login of its own and no databases.
    Sentinel,
}

/// Whose certificates are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trusted {
    /// Those of the configured authorities; of the public ones, if there are none.
    Configured,
    Public,
}

/// A connection, and a record of the bytes that have arrived on it.
pub(crate) struct WatchedConnection {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) arrivals: Arc<Arrivals>,
    /// The task that reads and writes, unless the library has its own.
    driver: Option<JoinHandle<()>>,
}

impl Drop for WatchedConnection {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

impl Dialer {
    pub(crate) fn new(settings: Arc<RedisSettings>) -> Self {
        // Fails if the program has installed a provider itself, which is fine.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tls = Arc::new(ArcSwap::from_pointee(settings.tls.clone()));
        Self { settings, tls }
    }

    /// Uses these certificates for new connections.
    pub(crate) fn set_tls(&self, tls: RedisTls) {
        self.tls.store(Arc::new(tls));
    }

    /// A number from 0 to 1, by which the waits between attempts vary.
    pub(crate) fn chance(&self) -> f64 {
        let network = self.settings.network.as_ref();
        network.map_or_else(chance, |network| network.chance())
    }

    /// The time that a connection may take to be made.
    pub(crate) fn timeout(&self) -> Duration {
        self.settings.connect_timeout
    }

    /// A connection that can be shared.
    pub(crate) async fn dial(
        &self,
        node: &RedisNode,
        role: Role,
    ) -> Result<MultiplexedConnection, RedisError> {
        let config = self.config();
        let dial = async |client: Client| {
            let dialing = client.get_multiplexed_async_connection_with_config(&config);
            // The library's own timeout does not cover the login.
            within(self.settings.connect_timeout, dialing).await
        };
        match dial(self.client(node, role, Trusted::Configured)?).await {
            Err(error) if self.is_for_public(&error) => {
                dial(self.client(node, role, Trusted::Public)?).await
            }
            dialed => dialed,
        }
    }

    /// Connects to a server with data. The connection records the bytes that arrive on it, except with TLS.
    pub(crate) async fn dial_watched(
        &self,
        node: &RedisNode,
    ) -> Result<WatchedConnection, RedisError> {
        if self.settings.url.is_tls {
            return Ok(WatchedConnection {
                connection: self.dial(node, Role::Server).await?,
                arrivals: Arrivals::unknown(),
                driver: None,
            });
        }
        let dialing = async {
            if let Some(network) = &self.settings.network {
                let connection = network.connect().await?;
                let (stream, arrivals) = WatchedStream::from_network(connection);
                return self.log_in(stream, arrivals).await;
            }
            match node {
                RedisNode::Unix(path) => {
                    let (stream, arrivals) = WatchedStream::new(UnixStream::connect(path).await?)?;
                    self.log_in(stream, arrivals).await
                }
                RedisNode::Tcp { host, port } => {
                    let (stream, arrivals) = WatchedStream::new(reach(host, *port).await?)?;
                    self.log_in(stream, arrivals).await
                }
            }
        };
        within(self.settings.connect_timeout, dialing).await
    }

    /// A connection over this stream.
    pub(crate) async fn log_in(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        arrivals: Arc<Arrivals>,
    ) -> Result<WatchedConnection, RedisError> {
        let login = self.login(Role::Server);
        let logging_in = MultiplexedConnection::new_with_config(&login, stream, self.config());
        let (connection, driver) = logging_in.await?;
        Ok(WatchedConnection {
            connection,
            arrivals,
            driver: Some(tokio::spawn(driver)),
        })
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.settings.connect_timeout))
            // Callers have deadlines of their own.
            .set_response_timeout(None)
    }

    /// A connection that receives published messages.
    pub(crate) async fn listen(&self, node: &RedisNode, role: Role) -> Result<PubSub, RedisError> {
        let listen = async |client: Client| {
            within(self.settings.connect_timeout, client.get_async_pubsub()).await
        };
        match listen(self.client(node, role, Trusted::Configured)?).await {
            Err(error) if self.is_for_public(&error) => {
                listen(self.client(node, role, Trusted::Public)?).await
            }
            listening => listening,
        }
    }

    /// Whether a certificate that no configured authority has issued may be one of a public authority. The library
    /// takes the ones or the others.
    fn is_for_public(&self, error: &RedisError) -> bool {
        let has_own = self.tls.load().ca.is_some();
        self.settings.trust_public && has_own && error.to_string().contains("UnknownIssuer")
    }

    fn client(&self, node: &RedisNode, role: Role, trusted: Trusted) -> Result<Client, RedisError> {
        let settings = &self.settings;
        let mut addr = match node {
            RedisNode::Unix(path) => ConnectionAddr::Unix(path.clone()),
            RedisNode::Tcp { host, port } if settings.url.is_tls => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
            RedisNode::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
        };
        if settings.url.is_tls && settings.any_name {
            addr.set_danger_accept_invalid_hostnames(true);
        }
        let info: ConnectionInfo = addr.into_connection_info()?;
        let info = info
            .set_redis_settings(self.login(role))
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        if !settings.url.is_tls {
            return Client::open(info);
        }
        let tls = self.tls.load_full();
        let client_tls = match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig {
                client_cert: cert.clone(),
                client_key: key.clone(),
            }),
            _ => None,
        };
        let certificates = TlsCertificates {
            client_tls,
            root_cert: match trusted {
                Trusted::Configured => tls.ca.clone(),
                Trusted::Public => None,
            },
        };
        Client::build_with_tls(info, certificates)
    }

    fn login(&self, role: Role) -> RedisConnectionInfo {
        let settings = &self.settings;
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
        login.set_lib_name("tidegate", env!("CARGO_PKG_VERSION"))
    }
}

/// The error of a call on a connection of its own: lost if it may have been made.
pub(crate) fn store_error(error: &RedisError) -> StoreError {
    let is_lost = error.is_io_error();
    let error = Box::new(error.clone());
    if is_lost {
        StoreError::Lost(error)
    } else {
        StoreError::Unreachable(error)
    }
}

/// Explains an error, and names the setting to change if the login is missing. Redis reports a missing login in two
/// ways, one of which is an error about the length of a command.
pub(crate) fn explain(error: &RedisError, role: Role) -> String {
    let text = error.to_string();
    if error.code() != Some("NOAUTH") && !text.contains("unauthenticated") {
        return text;
    }
    match role {
        Role::Server => {
            "it requires a password, and none is configured; set `redis_password_file` or TIDEGATE_REDIS_PASSWORD, or give the password in the URL"
        }
        Role::Sentinel => {
            "it requires a password, and none is configured; set `redis_sentinel_password_file` or TIDEGATE_REDIS_SENTINEL_PASSWORD"
        }
    }
    .to_owned()
}

/// A connection to whichever of the host's addresses answers first.
async fn reach(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let reaching: Vec<_> = addresses
        .map(|address| Box::pin(TcpStream::connect(address)))
        .collect();
    if reaching.is_empty() {
        let problem = format!("`{host}` has no address");
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, problem));
    }
    let (stream, _) = select_ok(reaching).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
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
            format!("{NO_ANSWER} {timeout:?}"),
        ))),
    }
}
