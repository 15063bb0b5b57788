//! An axum service behind rate limits: three orders a minute from one address, two reports at the same time.
//!
//! Run it with `cargo run -p tidegate-tower --example axum`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::{Router, routing::get};
use tidegate::rules::RuleSet;
use tidegate::{Gate, MemoryStore};
use tidegate_tower::RateLimitLayer;

const RULES: &str = "
rules:
  - {id: orders, match: {path: /orders/**}, per: [ip], limit: 3/minute}
  - {id: reports, match: {path: /reports}, per: [], limit: 2, algorithm: concurrency}
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gate = Arc::new(Gate::new(MemoryStore::new(), RuleSet::from_yaml(RULES)?));
    let maintained = Arc::clone(&gate);
    tokio::spawn(async move { maintained.maintain().await });

    let limits = RateLimitLayer::new(gate).peer_address(|request| {
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
        Some(peer.0.ip())
    });
    let app = Router::new()
        .route("/orders", get(async || "no orders yet\n"))
        .route("/reports", get(async || "no reports yet\n"))
        .layer(limits)
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on {address}; the fourth of these within a minute is denied:");
    println!("  curl -i http://{address}/orders");
    Ok(axum::serve(listener, app).await?)
}
