//! A tonic service behind rate limits: three calls a minute of a method from one address. The service is the
//! health service, which every gRPC client can call.
//!
//! Run it with `cargo run -p tidegate-tower --example tonic`.

use std::sync::Arc;

use tidegate::rules::RuleSet;
use tidegate::{Gate, MemoryStore};
use tidegate_tower::RateLimitLayer;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

// The path of a call is `/package.Service/Method`.
const RULES: &str = "
rules:
  - {id: checks, match: {path: /grpc.health.v1.Health/Check}, per: [ip], limit: 3/minute}
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gate = Arc::new(Gate::new(MemoryStore::new(), RuleSet::from_yaml(RULES)?));
    let maintained = Arc::clone(&gate);
    tokio::spawn(async move { maintained.maintain().await });

    let limits = RateLimitLayer::new(gate).peer_address(|request| {
        let peer = request.extensions.get::<TcpConnectInfo>()?;
        Some(peer.remote_addr()?.ip())
    });
    let (_reporter, health) = tonic_health::server::health_reporter();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = TcpIncoming::bind(address.parse()?)?;
    let address = listener.local_addr()?;
    println!(
        "listening on {address}; the fourth of these within a minute ends with grpc-status 8:"
    );
    println!(
        "  printf '\\0\\0\\0\\0\\0' | curl -i --http2-prior-knowledge -H 'content-type: application/grpc' -H 'te: trailers' --data-binary @- -o - http://{address}/grpc.health.v1.Health/Check"
    );
    let server = Server::builder().layer(limits).add_service(health);
    Ok(server.serve_with_incoming(listener).await?)
}
