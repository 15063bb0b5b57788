//! The addresses that the front ends listen on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use tidegate_gateway::find_self_upstream;
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::config::Config;
use crate::front_ends::{FRONT_ENDS, ServedFrontEnd};
use crate::run_error::RunError;

/// The sockets of a server, bound by the caller so that tests can choose port 0.
#[derive(Debug)]
pub struct Listeners {
    front_ends: Vec<(&'static ServedFrontEnd, TcpListener)>,
    /// The Unix socket of gRPC, if it has one, and its path.
    grpc: Option<(UnixListener, PathBuf)>,
}

impl Listeners {
    /// Binds the addresses of the configuration.
    pub async fn bind(config: &Config) -> Result<Self, RunError> {
        let mut bound = Vec::new();
        for front_end in &FRONT_ENDS {
            let Some(address) = (front_end.address)(config) else {
                continue;
            };
            match bind(address, front_end.flag) {
                Ok(listener) => bound.push((front_end, listener)),
                Err(error) if front_end.is_optional => tracing::error!("{error}"),
                Err(error) => return Err(error),
            }
        }
        let socket = config.grpc_settings.socket.as_deref();
        let listeners = Self {
            front_ends: bound,
            grpc: socket.map(bind_socket).transpose()?,
        };
        listeners.reject_self_upstream(config).await?;
        Ok(listeners)
    }

    /// The name and address of each front end.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let address = |(front_end, listener): &(&'static ServedFrontEnd, TcpListener)| {
            Some((front_end.name, listener.local_addr().ok()?))
        };
        self.front_ends.iter().filter_map(address).collect()
    }

    /// The path of the Unix socket of gRPC, if it has one.
    pub fn grpc_socket(&self) -> Option<&Path> {
        self.grpc.as_ref().map(|(_, path)| path.as_path())
    }

    /// The front ends that are on, each with its socket, and the Unix socket of gRPC.
    pub(crate) fn into_parts(
        self,
    ) -> (
        Vec<(&'static ServedFrontEnd, TcpListener)>,
        Option<UnixListener>,
    ) {
        (self.front_ends, self.grpc.map(|(socket, _)| socket))
    }

    /// Refuses a gateway whose upstream is this server.
    async fn reject_self_upstream(&self, config: &Config) -> Result<(), RunError> {
        let Some(gateway) = &config.gateway else {
            return Ok(());
        };
        match find_self_upstream(&gateway.routes, &self.addresses()).await {
            Some(own) => Err(RunError::OwnUpstream {
                upstream: own.upstream,
                front_end: own.front_end,
                address: own.address,
            }),
            None => Ok(()),
        }
    }
}

/// How many connections the system keeps for a port until they are accepted. Those of clients beyond `max_connections`, or of many that
/// connect at the same instant, wait there; beyond it the system drops them, and a client tries again a second later.
const ACCEPT_QUEUE: u32 = 1_024;

/// Binds a Unix socket. One that an earlier server has left is replaced.
fn bind_socket(path: &Path) -> Result<(UnixListener, PathBuf), RunError> {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let removed = if is_socket {
        std::fs::remove_file(path)
    } else {
        Ok(())
    };
    let bound = removed.and_then(|()| UnixListener::bind(path));
    let bound = bound.map(|socket| (socket, path.to_owned()));
    bound.map_err(|source| RunError::BindSocket {
        path: path.to_owned(),
        source,
    })
}

fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, RunError> {
    let bound = listen(address);
    bound.map_err(|source| RunError::Bind {
        flag,
        address,
        source,
    })
}

fn listen(mut address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => match TcpSocket::new_v6() {
            // All addresses are those of one family, if the machine has only that.
            Err(_) if address.ip().is_unspecified() => {
                address.set_ip(Ipv4Addr::UNSPECIFIED.into());
                TcpSocket::new_v4()?
            }
            socket => {
                let socket = socket?;
                // All addresses are those of both families, whatever the system's default is.
                if address.ip().is_unspecified() {
                    rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
                }
                socket
            }
        },
    };
    // On Windows it would let another program take the port.
    if cfg!(unix) {
        socket.set_reuseaddr(true)?;
    }
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        // A machine may have only one of them.
        let listener = listen("[::]:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        if listener.local_addr().unwrap().is_ipv6() {
            assert!(!rustix::net::sockopt::ipv6_v6only(&listener).unwrap());
        }
    }

    #[tokio::test]
    async fn hundreds_of_clients_can_wait_to_be_accepted() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for number in 0..500 {
            // The first retry of a client whose connection was dropped comes after a second.
            let connection = timeout(Duration::from_millis(900), TcpStream::connect(address));
            let connection = connection.await;
            assert!(connection.is_ok(), "the system dropped client {number}");
            waiting.push(connection);
        }
    }
}
