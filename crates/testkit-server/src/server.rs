//! A server that runs, wherever it runs: its addresses, its log, and a client of it.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::{ClientReply, HttpClient, ServerLog};

/// A server that listens: what its clients need to know.
#[derive(Debug)]
pub struct TestServer {
    /// The HTTP API.
    pub address: SocketAddr,
    /// The listener of the whole API, if there is one besides that of services.
    pub admin: Option<SocketAddr>,
    /// gRPC, if it is served.
    pub grpc: Option<SocketAddr>,
    /// The debug port, if there is one.
    pub debug: Option<SocketAddr>,
    /// The port for Prometheus, if there is one.
    pub prometheus: Option<SocketAddr>,
    /// The Redis protocol, if it is served.
    pub resp: Option<SocketAddr>,
    /// The gateway, if there is one.
    pub gateway: Option<SocketAddr>,
    /// The token that the server made, if it did.
    pub token: Option<String>,
    /// The log so far.
    pub log: Arc<ServerLog>,
}

impl TestServer {
    /// A server at the addresses of its front ends, by their names.
    pub fn new<'a>(
        addresses: impl IntoIterator<Item = (&'a str, SocketAddr)>,
        token: Option<String>,
        log: Arc<ServerLog>,
    ) -> Self {
        let addresses: Vec<_> = addresses.into_iter().collect();
        let find = |name| {
            let mut found = addresses.iter().filter(|(known, _)| *known == name);
            found.next().map(|(_, address)| *address)
        };
        Self {
            address: find("http").unwrap(),
            admin: find("admin"),
            grpc: find("grpc"),
            debug: find("debug"),
            prometheus: find("prometheus"),
            resp: find("resp"),
            gateway: find("gateway"),
            token,
            log,
        }
    }

    /// A connection to the HTTP API, which has the token that the server made.
    pub fn client(&self) -> HttpClient {
        HttpClient::to(self.address).with_token(self.token.clone())
    }

    /// Sends a request on a new connection.
    pub fn ask(&self, call: &str, body: &str) -> ClientReply {
        self.client().ask(call, body)
    }

    /// The same with headers.
    pub fn ask_with(&self, call: &str, headers: &[(&str, &str)], body: &str) -> ClientReply {
        self.client().ask_with(call, headers, body)
    }

    /// The URL of the HTTP API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
