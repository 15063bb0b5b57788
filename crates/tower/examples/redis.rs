//! An axum service whose limits are shared with other instances in Redis: three orders a minute from one
//! address, whichever instance it asks.
//!
//! Run two of them: `cargo run -p tidegate-tower --example redis 127.0.0.1:3001`, the other on port 3002.
#![expect(
    clippy::disallowed_methods,
    reason = "this program's own configuration is the environment"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Router, routing::get};
use tidegate::Gate;
use tidegate::rules::RuleSet;
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_tower::RateLimitLayer;

const RULES: &str = "
rules:
  - {id: orders, match: {path: /orders/**}, per: [ip], limit: 3/minute}
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let mut settings = RedisSettings::new(url.parse()?);
    settings.key_secret = std::env::var("KEY_SECRET").ok().map(String::into_bytes);
    let store = RedisStore::open(settings);
    if let Err(problem) = store.connected(Duration::from_secs(1)).await {
        eprintln!("Redis does not answer; each rule follows its `on_store_failure`: {problem}");
    }
    let gate = Arc::new(Gate::new(store.clone(), RuleSet::from_yaml(RULES)?));
    let maintained = Arc::clone(&gate);
    tokio::spawn(async move { maintained.maintain().await });

    let limits = RateLimitLayer::new(Arc::clone(&gate)).peer_address(|request| {
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
        Some(peer.0.ip())
    });
    let app = Router::new()
        .route("/orders", get(async || "no orders yet\n"))
        .layer(limits)
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on {address}; the fourth of these within a minute is denied:");
    println!("  curl -i http://{address}/orders");
    let stopped = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped)
        .await?;
    // Charges Redis for what it has not seen, and returns what this instance took in advance.
    gate.reconcile().await;
    store.leave().await;
    Ok(())
}
