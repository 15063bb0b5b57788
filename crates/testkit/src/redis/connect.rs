//! The ways to a server: its URL, a client, and commands by its Unix socket.

use std::time::Duration;

use redis::{
    Client, Connection, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult,
};

use super::RedisServer;
use super::options::Listen;
use super::server::PATIENCE;

impl RedisServer {
    /// `redis://`, `rediss://` or, on a Unix socket only, `redis+unix://`; with user and password.
    pub fn url(&self) -> String {
        let user = self.options.user.as_deref().unwrap_or_default();
        let password = self.options.password.as_deref();
        let scheme = match self.options.listen {
            Listen::Tcp => "redis",
            Listen::Tls(_) => "rediss",
            Listen::UnixOnly => {
                let query = password.map(|password| format!("?user={user}&pass={password}"));
                let query = query.unwrap_or_default().replace("user=&", "");
                return format!("redis+unix://{}{query}", self.socket().display());
            }
        };
        format!("{scheme}://{}{}", self.login(), self.address())
    }

    /// `user:password@`, as a URL has it; empty without a password.
    pub(super) fn login(&self) -> String {
        let user = self.options.user.as_deref().unwrap_or_default();
        let password = self.options.password.as_deref();
        let login = password.map(|password| format!("{user}:{password}@"));
        login.unwrap_or_default()
    }

    /// A client by [`url`](Self::url), with the client's certificate where there is TLS.
    pub fn client(&self) -> Client {
        let client = match self.certificates() {
            None => Client::open(self.url()),
            Some(certificates) => {
                let provider = rustls::crypto::aws_lc_rs::default_provider();
                let _ = provider.install_default();
                Client::build_with_tls(self.url(), certificates.with_client())
            }
        };
        client.expect("a URL that the client can read")
    }

    /// Runs one command by the Unix socket and waits for its reply, an error included.
    pub fn try_query<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        self.query_within(PATIENCE, command)
    }

    /// Runs one command by the Unix socket; a server that has not answered by then, perhaps because it is
    /// stopped, is an error.
    pub fn query_within<T: FromRedisValue>(
        &self,
        patience: Duration,
        command: &[&str],
    ) -> RedisResult<T> {
        let mut words = command.iter();
        let mut command = redis::cmd(words.next().copied().unwrap_or_default());
        for word in words {
            command.arg(*word);
        }
        command.query(&mut self.control(patience)?)
    }

    /// Runs one command by the Unix socket, and panics unless the reply is what was asked for.
    pub fn query<T: FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_query(command)
            .unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    fn control(&self, patience: Duration) -> RedisResult<Connection> {
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &self.options.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.options.password {
            settings = settings.set_password(password);
        }
        let address: ConnectionInfo = ConnectionAddr::Unix(self.socket()).into_connection_info()?;
        let client = Client::open(address.set_redis_settings(settings))?;
        let connection = client.get_connection_with_timeout(patience)?;
        connection.set_read_timeout(Some(patience))?;
        Ok(connection)
    }
}
