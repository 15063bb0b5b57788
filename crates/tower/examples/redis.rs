//! An axum app whose limits are shared with other instances in Redis: three orders a minute from one
//! address, whichever instance it asks.
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
use tidegate::document::Source;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_tower::RateLimitLayer;

const RULES: &str = "
rules:
  - {id: orders, match: {path: /orders/**}, per: [ip], limit: 3/minute}
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Source::new("rules.yaml", RULES);
    let (rules, problems) = RuleSet::read(&source, &RuleSettings::default());
    let rules = rules.ok_or_else(|| problems.render(&source))?;

    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let mut settings = RedisSettings::new(url.parse()?);
    settings.key_secret = std::env::var("KEY_SECRET").ok().map(String::into_bytes);
    let store = RedisStore::open(settings);
    if let Err(problem) = store.connected(Duration::from_secs(1)).await {
        eprintln!(
            "Redis does not answer yet, each rule does what its `on_store_failure` says: {problem}"
        );
    }
    let gate = Arc::new(Gate::new(store.clone(), rules));
    tokio::spawn(reconcile(Arc::clone(&gate)));

    let limits = RateLimitLayer::new(gate).peer_address(|request| {
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
    let stopped = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped)
        .await?;
    // Gives back what this instance took in advance.
    store.leave().await;
    Ok(())
}

/// Charges Redis for what was admitted while it could not be reached.
async fn reconcile(gate: Arc<Gate<RedisStore>>) {
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        gate.reconcile().await;
    }
}
