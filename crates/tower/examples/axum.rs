//! An axum app behind rate limits: three orders a minute from one address.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::{Router, routing::get};
use tidegate::document::Source;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{Gate, MemoryStore};
use tidegate_tower::RateLimitLayer;

const RULES: &str = "
rules:
  - {id: orders, match: {path: /orders/**}, per: [ip], limit: 3/minute}
  - {id: reports, match: {path: /reports}, per: [], limit: 2, algorithm: concurrency}
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Source::new("rules.yaml", RULES);
    let (rules, problems) = RuleSet::read(&source, &RuleSettings::default());
    let rules = rules.ok_or_else(|| problems.render(&source))?;
    let gate = Arc::new(Gate::new(MemoryStore::new(), rules));
    let limits = RateLimitLayer::new(gate).peer_address(|request| {
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
        Some(peer.0.ip())
    });
    let app = Router::new()
        .route("/orders", get(async || "no orders yet\n"))
        .route("/reports", get(async || "no reports yet\n"))
        .layer(limits)
        .into_make_service_with_connect_info::<SocketAddr>();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app).await?)
}
