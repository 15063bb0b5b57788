//! The addresses that the front ends listen on.

use std::io;
use std::net::SocketAddr;

use tidegate_gateway::find_self_upstream;
use tokio::net::{TcpListener, TcpSocket};

use crate::config::Config;
use crate::run_error::RunError;

/// The sockets of a server, bound by the caller so that tests can choose port 0.
#[derive(Debug)]
pub struct Listeners {
    /// HTTP.
    pub http: TcpListener,
    /// gRPC, if it is served.
    pub grpc: Option<TcpListener>,
    /// The Redis protocol, if it is served.
    pub resp: Option<TcpListener>,
    /// The gateway, if there is one.
    pub gateway: Option<TcpListener>,
}

impl Listeners {
    /// Binds the addresses of the configuration.
    pub async fn bind(config: &Config) -> Result<Self, RunError> {
        let resp = match config.resp {
            Some(address) => Some(bind(address, "--resp")?),
            None => None,
        };
        let grpc = match config.grpc {
            Some(address) => Some(bind(address, "--grpc")?),
            None => None,
        };
        let http = bind(config.http, "--http")?;
        let gateway = match &config.gateway {
            Some(gateway) => Some(bind(gateway.address, "--gateway")?),
            None => None,
        };
        let listeners = Self {
            http,
            grpc,
            resp,
            gateway,
        };
        listeners.reject_self_upstream(config).await?;
        Ok(listeners)
    }

    /// The name and address of each front end.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let all = [
            ("http", Some(&self.http)),
            ("grpc", self.grpc.as_ref()),
            ("resp", self.resp.as_ref()),
            ("gateway", self.gateway.as_ref()),
        ];
        let address = |(front_end, listener): (&'static str, Option<&TcpListener>)| {
            Some((front_end, listener?.local_addr().ok()?))
        };
        all.into_iter().filter_map(address).collect()
    }
}

impl Listeners {
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
