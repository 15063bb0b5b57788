//! Finds the server that runs on a data directory, its address and its generated token: for commands on the same
//! machine.

use std::fmt::Write as _;
use std::fs::TryLockError;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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
}

impl RunningServer {
    /// The server that runs on this directory, if one does and its files can be read. Files left by a killed
    /// server do not count.
    pub fn find(directory: &Path) -> Option<Self> {
        let file = open_regular(&directory.join(FILE)).ok()??;
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("http="))?;
        let http = line.parse().ok()?;
        is_locked(directory).then_some(Self { http })
    }

    /// The address at which this server is reached under that host and port; `None` if another program may have
    /// that address.
    pub fn at(&self, host: &str, port: u16) -> Option<SocketAddr> {
        if port != self.http.port() {
            return None;
        }
        let [v4, v6] = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        let bound = self.http.ip();
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

    /// The generated token of this server, if it can be read.
    pub fn token(directory: &Path) -> Option<String> {
        made_token::read(directory, is_trusted_by_commands)
            .ok()
            .flatten()
    }
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
            };
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(
                server.at(host, port),
                expected,
                "{bound} as {host} port {port}"
            );
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
        assert_eq!(RunningServer::find(path), Some(RunningServer { http }));
        drop(directory);
        assert!(path.join(FILE).exists(), "as after a crash");
        assert_eq!(RunningServer::find(path), None);
        let directory = LockedDir::open(path).unwrap();
        withdraw(&directory).unwrap();
        assert_eq!(RunningServer::find(path), None);
    }
}
