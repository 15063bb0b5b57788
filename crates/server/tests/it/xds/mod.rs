//! Rules of a management server that is scripted: what it sends, how it fails, and what decisions go by meanwhile.

mod away;
mod overridden;
mod refused;
mod reported;
mod responses;

use std::net::SocketAddr;

use serde_json::{Value, json};
use tidegate_server::grpc_messages::rate_limit::Unit;
use tidegate_server::grpc_messages::rate_limit_config::ConfiguredDomain;
use tidegate_testkit_server::TestFolder;
use tidegate_testkit_xds::{
    ManagementServer, ServedOver, ServedStream, domain, encoded, limited, per,
};

use crate::Server;

/// A domain in which each user has so many requests a day.
pub(crate) fn users(name: &str, requests: u32) -> ConfiguredDomain {
    domain(name, [limited("user", "", per(requests, Unit::Day))])
}

/// Writes the settings of a server that follows one at this address.
fn follow(folder: &TestFolder, server: &impl ToString, more: &str) {
    let text = format!(
        "xds:\n  server: {}\n  node: envoy-ratelimit\n  backoff: {{initial: 20ms, max: 40ms}}\n{more}",
        server.to_string()
    );
    folder.write("tidegate.yaml", &text);
}

fn serve(folder: &TestFolder) -> Server {
    folder.serve(&["--config", "tidegate.yaml", "--grpc", "127.0.0.1:0"])
}

/// A server that follows a management server, which has sent these domains.
struct Followed {
    folder: TestFolder,
    management: ManagementServer,
    server: Server,
    stream: ServedStream,
}

impl Followed {
    fn start(domains: &[ConfiguredDomain]) -> Self {
        Self::with("", domains)
    }

    fn with(more: &str, domains: &[ConfiguredDomain]) -> Self {
        let (folder, management) = (TestFolder::new(), ManagementServer::start());
        follow(&folder, &management.address(), more);
        let server = serve(&folder);
        let stream = first_stream(&management);
        assert_accepted(&stream, "1", domains);
        Self {
            folder,
            management,
            server,
            stream,
        }
    }

    /// Ends the management server. Its address.
    fn end_management(self) -> (TestFolder, Server, SocketAddr) {
        let address = self.management.address();
        (self.folder, self.server, address)
    }
}

pub(crate) fn at(address: SocketAddr) -> ManagementServer {
    ManagementServer::serve(address, ServedOver::Tcp)
}

/// The next stream, after its first request.
pub(crate) fn first_stream(management: &ManagementServer) -> ServedStream {
    let stream = management.stream();
    let first = stream.request().unwrap();
    assert_eq!(first.node.unwrap().id, "envoy-ratelimit");
    stream
}

/// Sends domains. When this returns, they are in force.
pub(crate) fn assert_accepted(stream: &ServedStream, version: &str, domains: &[ConfiguredDomain]) {
    let answered = stream.publish(version, encoded(domains));
    assert_eq!(answered.error_detail, None);
    assert_eq!(answered.version_info, version);
}

/// Whether a request of a user is allowed.
fn is_allowed(server: &Server, domain: &str, user: &str) -> bool {
    let body = json!({"attributes": {"domain": domain, "user": user}}).to_string();
    let answer = server.ask("POST /v1/check", &body).json();
    answer["allowed"].as_bool().unwrap()
}

/// How many requests of a new user are allowed, of three.
fn allowed(server: &Server, domain: &str, user: &str) -> usize {
    let asked = (0..3).map(|_| is_allowed(server, domain, user));
    asked.filter(|is_allowed| *is_allowed).count()
}

fn ready(server: &Server) -> Value {
    server.ask("GET /readyz", "").with_status(200).json()
}

/// The value of a metric.
fn metric(server: &Server, name: &str) -> f64 {
    let page = server.ask("GET /metrics", "").with_status(200).body;
    let lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let mut values = lines.filter_map(|rest| rest.strip_prefix(' ')?.parse().ok());
    values
        .next()
        .unwrap_or_else(|| panic!("no {name} in:\n{page}"))
}
