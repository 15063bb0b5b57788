//! The addresses that the front ends listen on.

use std::io;
use std::net::SocketAddr;

use tidegate_gateway::find_self_upstream;
use tokio::net::{TcpListener, TcpSocket};

use crate::config::Config;
use crate::front_ends::{FRONT_ENDS, ServedFrontEnd};
use crate::run_error::RunError;

/// The sockets of a server, bound by the caller so that tests can choose port 0.
#[derive(Debug)]
pub struct Listeners(Vec<(&'static ServedFrontEnd, TcpListener)>);

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
        let listeners = Self(bound);
        listeners.reject_self_upstream(config).await?;
        Ok(listeners)
    }

    /// The name and address of each front end.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let address = |(front_end, listener): &(&'static ServedFrontEnd, TcpListener)| {
            Some((front_end.name, listener.local_addr().ok()?))
        };
        self.0.iter().filter_map(address).collect()
    }

    /// The front ends that are on, each with its socket.
    pub(crate) fn into_front_ends(self) -> Vec<(&'static ServedFrontEnd, TcpListener)> {
        self.0
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

fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, RunError> {
    let bound = listen(address);
    bound.map_err(|source| RunError::Bind {
        flag,
        address,
        source,
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
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
