//! The addresses that the front ends listen on.

use std::net::SocketAddr;

use tidegate_gateway::find_self_upstream;
use tokio::net::TcpListener;

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
            Some(address) => Some(bind(address, "--resp").await?),
            None => None,
        };
        let grpc = match config.grpc {
            Some(address) => Some(bind(address, "--grpc").await?),
            None => None,
        };
        let http = bind(config.http, "--http").await?;
        let gateway = match &config.gateway {
            Some(gateway) => Some(bind(gateway.address, "--gateway").await?),
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

async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, RunError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| RunError::Bind {
        flag,
        address,
        source,
    })
}
