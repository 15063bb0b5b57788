//! In place of envoyproxy/ratelimit: its endpoints, and what a token opens.

mod endpoints;
mod listener;
mod open;
mod situations;

use tidegate_testkit_server::{HttpClient, TestFolder};

use crate::Server;

pub(super) const RULES: &str = "domain: infra/gw/http
descriptors:
- {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: plan, value: free, rate_limit: {unit: day, requests_per_unit: 5, name: free}}
";

/// A server with these rules and variables.
pub(super) fn serve(folder: &TestFolder, rules: &str, variables: &[(&str, &str)]) -> Server {
    folder.write("rules.yaml", rules);
    let arguments = [
        "--as",
        "envoy-ratelimit",
        "--rules",
        "rules.yaml",
        "--grpc",
        "127.0.0.1:0",
        "--debug",
        "127.0.0.1:0",
    ];
    folder.serve_with(&arguments, variables)
}

pub(super) fn get(server: &Server, path: &str) -> (u16, String) {
    let reply = HttpClient::to(server.address).ask(&format!("GET {path}"), "");
    (reply.status, reply.body)
}
