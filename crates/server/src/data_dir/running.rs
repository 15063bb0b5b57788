//! Finds the server that runs on a data directory, its address and its generated token: for commands on the same
//! machine.

use std::fmt::Write as _;
use std::fs::TryLockError;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::made_token;
use super::owner::{is_trusted_by_commands, open_regular};
use super::{DataDirError, LockedDir};

/// The file that names the addresses of the running server, a line for each front end.
const FILE: &str = "listening";

/// More than the addresses take.
const MAX_BYTES: u64 = 4_096;

/// A server that runs on a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningServer {
    /// Where its HTTP front end listens.
    http: SocketAddr,
    /// Where its admin listener is, if it has one.
    admin: Option<SocketAddr>,
}

/// The addresses at which a server on this machine is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReachedServer {
    /// Where it answers all calls.
    pub api: SocketAddr,
    /// Where services ask it: not the admin listener, if it has both.
    pub checks: SocketAddr,
}

impl RunningServer {
    /// The server that runs on this directory, if one does and its files can be read. Files left by a killed
    /// server do not count, nor do those of another user.
    pub fn find(directory: &Path) -> Option<Self> {
        let file = open_regular(&directory.join(FILE)).ok()??;
        if !is_trusted_by_commands(file.metadata().ok()?.uid()) {
            return None;
        }
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        let address = |front_end: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            let (_, address) = lines.find(|(name, _)| *name == front_end)?;
            address.parse().ok()
        };
        let found = Self {
            http: address("http")?,
            admin: address("admin"),
        };
        is_locked(directory).then_some(found)
    }

    /// Whether calls other than those of services are answered at another address.
    pub fn has_admin(&self) -> bool {
        self.admin.is_some()
    }

    /// The addresses at which this server is reached under that host, if the port is one of its own; `None` if
    /// another program may have such an address.
    pub fn at(&self, host: &str, port: u16) -> Option<ReachedServer> {
        let http = reached(self.http, host);
        let Some(admin) = self.admin else {
            let api = http.filter(|http| http.port() == port)?;
            return Some(ReachedServer { api, checks: api });
        };
        let api = reached(admin, host)?;
        let is_own = api.port() == port || http.is_some_and(|http| http.port() == port);
        is_own.then_some(ReachedServer {
            api,
            checks: http.unwrap_or(api),
        })
    }

    /// The generated token of this server, if it can be read.
    pub fn token(directory: &Path) -> Option<String> {
        made_token::read(directory, is_trusted_by_commands)
            .ok()
            .flatten()
    }
}

/// The address at which a listener is reached under that host; `None` if another program may have that address.
fn reached(bound: SocketAddr, host: &str) -> Option<SocketAddr> {
    let port = bound.port();
    let [v4, v6] = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    let bound = bound.ip();
    let reached = match host.parse::<IpAddr>() {
        Ok(ip) if !ip.is_loopback() => None,
        Ok(ip) if ip == bound => Some(ip),
        Ok(ip) if bound == IpAddr::V4(Ipv4Addr::UNSPECIFIED) => ip.is_ipv4().then_some(ip),
        Ok(ip) if bound == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some(ip),
        Err(_) if !host.eq_ignore_ascii_case("localhost") => None,
        // The name may resolve to two addresses, with another program at one of them.
        Err(_) if bound == v4 || bound == IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Some(v4),
        Err(_) if bound == v6 || bound == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some(v6),
        Ok(_) | Err(_) => None,
    };
    reached.map(|ip| SocketAddr::new(ip, port))
}

/// Writes the addresses of the server that holds this directory.
pub(crate) fn announce(
    directory: &LockedDir,
    addresses: &[(&str, SocketAddr)],
) -> Result<(), DataDirError> {
    let mut text = String::new();
    for (front_end, address) in addresses {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{front_end}={address}");
    }
    directory.write(FILE, text.as_bytes())
}

/// Removes the addresses, when the server stops listening.
pub(crate) fn withdraw(directory: &LockedDir) -> Result<(), DataDirError> {
    directory.remove(FILE)
}

/// Whether a process holds the lock of a directory. Takes the lock for a moment to find out; a server that
/// starts in that moment retries.
fn is_locked(directory: &Path) -> bool {
    let Ok(Some(file)) = open_regular(&directory.join("lock")) else {
        return false;
    };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
        Ok(()) => {
            let _ = file.unlock();
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_only_where_no_other_program_can_answer() {
        #[rustfmt::skip]
        let table = [
            ("127.0.0.1:80", "127.0.0.1", 80, Some("127.0.0.1:80")),
            ("127.0.0.1:80", "localhost", 80, Some("127.0.0.1:80")),
            ("127.0.0.1:80", "LocalHost", 80, Some("127.0.0.1:80")),
            ("0.0.0.0:80",   "localhost", 80, Some("127.0.0.1:80")),
            ("0.0.0.0:80",   "127.0.0.2", 80, Some("127.0.0.2:80")),
            ("[::]:80",      "127.0.0.1", 80, Some("127.0.0.1:80")),
            ("[::]:80",      "localhost", 80, Some("[::1]:80")),
            ("[::1]:80",     "::1",       80, Some("[::1]:80")),
            ("127.0.0.1:80", "127.0.0.1", 81, None),
            ("127.0.0.1:80", "127.0.0.2", 80, None),
            ("127.0.0.1:80", "::1",       80, None),
            ("0.0.0.0:80",   "::1",       80, None),
            ("127.0.0.2:80", "localhost", 80, None),
            ("0.0.0.0:80",   "10.0.0.1",  80, None),
            ("10.0.0.1:80",  "10.0.0.1",  80, None),
            ("0.0.0.0:80",   "localhost.example.com", 80, None),
        ];
        for (bound, host, port, expected) in table {
            let server = RunningServer {
                http: bound.parse().unwrap(),
                admin: None,
            };
            let expected = expected.map(|address| {
                let api = address.parse().unwrap();
                ReachedServer { api, checks: api }
            });
            assert_eq!(
                server.at(host, port),
                expected,
                "{bound} as {host} port {port}"
            );
        }
    }

    #[test]
    fn commands_use_the_admin_listener_whichever_of_the_two_is_named() {
        #[rustfmt::skip]
        let table = [
            ("127.0.0.1:80", "127.0.0.1:90", "127.0.0.1", 80, Some(("127.0.0.1:90", "127.0.0.1:80"))),
            ("127.0.0.1:80", "127.0.0.1:90", "127.0.0.1", 90, Some(("127.0.0.1:90", "127.0.0.1:80"))),
            ("0.0.0.0:80",   "127.0.0.1:90", "localhost", 80, Some(("127.0.0.1:90", "127.0.0.1:80"))),
            ("10.0.0.1:80",  "127.0.0.1:90", "127.0.0.1", 90, Some(("127.0.0.1:90", "127.0.0.1:90"))),
            ("10.0.0.1:80",  "127.0.0.1:90", "127.0.0.1", 80, None),
            ("127.0.0.1:80", "10.0.0.1:90",  "127.0.0.1", 80, None),
            ("127.0.0.1:80", "127.0.0.1:90", "127.0.0.1", 70, None),
            ("127.0.0.1:80", "127.0.0.1:90", "10.0.0.1",  80, None),
        ];
        for (http, admin, host, port, expected) in table {
            let server = RunningServer {
                http: http.parse().unwrap(),
                admin: Some(admin.parse().unwrap()),
            };
            let expected = expected.map(|(api, checks)| ReachedServer {
                api: api.parse().unwrap(),
                checks: checks.parse().unwrap(),
            });
            assert_eq!(server.at(host, port), expected, "{http} {host}:{port}");
        }
    }

    #[test]
    fn only_a_server_that_runs_is_found() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path();
        assert_eq!(RunningServer::find(path), None);
        let directory = LockedDir::open(path).unwrap();
        assert_eq!(RunningServer::find(path), None);
        let http: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let grpc = "127.0.0.1:8081".parse().unwrap();
        announce(&directory, &[("grpc", grpc), ("http", http)]).unwrap();
        let admin = None;
        assert_eq!(
            RunningServer::find(path),
            Some(RunningServer { http, admin })
        );
        announce(&directory, &[("http", http), ("admin", grpc)]).unwrap();
        let admin = Some(grpc);
        assert_eq!(
            RunningServer::find(path),
            Some(RunningServer { http, admin })
        );
        drop(directory);
        assert!(path.join(FILE).exists(), "as after a crash");
        assert_eq!(RunningServer::find(path), None);
        let directory = LockedDir::open(path).unwrap();
        withdraw(&directory).unwrap();
        assert_eq!(RunningServer::find(path), None);
    }
}
