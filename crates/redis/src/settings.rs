//! How a Redis store is set up.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::known_instances::KnownInstances;
use crate::network::RedisNetwork;
use crate::url::RedisUrl;
use tidegate_redis_wire::keys::SecretFrom;
use tidegate_redis_wire::namespace::Namespace;

/// How a Redis store is set up. The defaults are those of the documentation.
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisSettings {
    /// Where Redis is.
    pub url: RedisUrl,
    /// The user to log in as, instead of the one in the URL.
    pub user: Option<String>,
    /// The password to log in with, instead of the one in the URL.
    pub password: Option<String>,
    /// The user for the sentinels, if they need one.
    pub sentinel_user: Option<String>,
    /// The password for the sentinels, if they need one.
    pub sentinel_password: Option<String>,
    /// Certificates for TLS.
    pub tls: RedisTls,
    /// Whether the public authorities are trusted next to those of `tls`.
    pub trust_public: bool,
    /// Whether the certificate of a server may be for any name. It is verified otherwise.
    pub any_name: bool,
    /// Separates this deployment from others in the same Redis. The same on every instance.
    pub namespace: Option<Namespace>,
    /// The secret under which keys are hashed; the same on every instance.
    pub key_secret: Option<Vec<u8>>,
    /// How long a decision waits for Redis, redirects included.
    pub deadline: Duration,
    /// How long a connection may take to be made, TLS and login included.
    pub connect_timeout: Duration,
    /// The data kept from the last run of this instance.
    pub known_instances: KnownInstances,
    /// Connects to the server of a `redis://` URL in place of the operating system, if given.
    pub network: Option<Arc<dyn RedisNetwork>>,
    /// Sees every call of the store, for metrics.
    pub observe_calls: Option<CallObserver>,
}

/// Is called after each call of a store, in the task that made it: with the time that the call took, and whether it
/// failed.
pub type CallObserver = Arc<dyn Fn(Duration, bool) + Send + Sync>;

/// Certificates for TLS, as the text of PEM files.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// Trusted authorities; those of the system if missing.
    pub ca: Option<Vec<u8>>,
    /// The client certificate.
    pub cert: Option<Vec<u8>>,
    /// Its private key.
    pub key: Option<Vec<u8>>,
}

impl RedisSettings {
    /// The settings for this URL, with defaults for all else.
    pub fn new(url: RedisUrl) -> Self {
        Self {
            url,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            tls: RedisTls::default(),
            trust_public: false,
            any_name: false,
            namespace: None,
            key_secret: None,
            deadline: Duration::from_millis(15),
            connect_timeout: Duration::from_millis(500),
            known_instances: KnownInstances::default(),
            network: None,
            observe_calls: None,
        }
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref().or(self.url.user.as_deref())
    }

    /// The secret under which values that must not be readable are hashed: the configured one, else one that
    /// is derived from the password of Redis, else a public constant. The same on every instance.
    pub fn hashing_secret(&self) -> Cow<'_, [u8]> {
        self.secret_from().bytes()
    }

    pub(crate) fn secret_from(&self) -> SecretFrom<'_> {
        match (&self.key_secret, self.password()) {
            (Some(secret), _) => SecretFrom::Configured(secret),
            (None, Some(password)) => SecretFrom::Password(password),
            (None, None) => SecretFrom::Public,
        }
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref().or(self.url.password.as_deref())
    }
}

/// Without secrets.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("url", &self.url)
            .field("namespace", &self.namespace)
            .field("deadline", &self.deadline)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
