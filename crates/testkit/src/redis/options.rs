//! What a server is started with, and the configuration file that says so.

use std::fmt::Write as _;
use std::path::Path;

use super::{Certificates, Program, RedisServer};

/// Whether a server with TLS wants its clients' certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// A client without one is refused.
    Required,
    /// A client may show one.
    Optional,
}

/// Where a server listens. All of them listen on a Unix socket in their folder as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Listen {
    #[default]
    Tcp,
    Tls(ClientCertificates),
    UnixOnly,
}

/// How to start a [`RedisServer`].
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RedisOptions {
    pub(super) program: Program,
    pub(super) listen: Listen,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) lines: Vec<String>,
    pub(super) variables: Vec<(String, String)>,
    pub(super) sentinel: bool,
}

impl RedisOptions {
    /// Another program than `redis-server`.
    pub fn program(mut self, program: Program) -> Self {
        self.program = program;
        self
    }

    /// Listens with TLS instead of plain TCP, with certificates made for this server.
    pub fn tls(mut self, clients: ClientCertificates) -> Self {
        self.listen = Listen::Tls(clients);
        self
    }

    /// Listens on its Unix socket and on no port.
    pub fn unix_only(mut self) -> Self {
        self.listen = Listen::UnixOnly;
        self
    }

    /// A password of the default user (`requirepass`), of letters and digits.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// A user who may do everything, and no default user.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some(name.to_owned());
        self.password(password)
    }

    /// One more line of the configuration file, such as `maxmemory-policy allkeys-lru`.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// An environment variable of the process, such as `LD_PRELOAD`.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(&self) -> RedisServer {
        RedisServer::start_with(self)
    }

    /// The configuration file of a server in `folder`.
    pub(super) fn configuration(
        &self,
        folder: &Path,
        port: Option<u16>,
        certificates: Option<&Certificates>,
    ) -> String {
        let folder = folder.display();
        let port = port.unwrap_or(0);
        let mut text = format!(
            "bind 127.0.0.1\nprotected-mode no\ndaemonize no\ndir {folder}\n\
             unixsocket {folder}/redis.sock\n"
        );
        let mut line = |line: &str| writeln!(text, "{line}").expect("a string takes writing");
        match (self.listen, certificates) {
            (Listen::Tls(clients), Some(files)) => {
                let clients = match clients {
                    ClientCertificates::Required => "yes",
                    ClientCertificates::Optional => "optional",
                };
                line("port 0");
                line(&format!("tls-port {port}"));
                line(&format!("tls-auth-clients {clients}"));
                line(&format!("tls-ca-cert-file {}", files.authority.display()));
                line(&format!("tls-cert-file {}", files.server.display()));
                line(&format!("tls-key-file {}", files.server_key.display()));
            }
            _ => line(&format!("port {port}")),
        }
        if !self.sentinel {
            line("save \"\"\nappendonly no\nenable-debug-command yes");
            // A replica is in sync at once, and not after waiting for others.
            line("repl-diskless-sync yes\nrepl-diskless-sync-delay 0");
        }
        if let Some(password) = &self.password {
            match &self.user {
                Some(user) => {
                    line(&format!("user {user} on >{password} ~* &* +@all"));
                    line("user default off");
                    line(&format!("masteruser {user}"));
                }
                None => line(&format!("requirepass {password}")),
            }
            line(&format!("masterauth {password}"));
        }
        for extra in &self.lines {
            line(extra);
        }
        text
    }
}
