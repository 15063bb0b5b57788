//! A service that answers every request behind the rules of a file: what other middleware is compared with.
//!
//! Run it with `cargo run -p tidegate-tower --example reference 127.0.0.1:0 rules.yaml 127.0.0.0/8`. It prints its
//! address. The networks are those of trusted proxies. `x-user` names the user; real services check it first.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::any;
use tidegate::address::{TrustedProxies, parse_network};
use tidegate::rules::RuleSet;
use tidegate::{Gate, MemoryStore};
use tidegate_tower::RateLimitLayer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("expected an address and a rule file".into());
    };
    let rules = RuleSet::from_yaml(&std::fs::read_to_string(file)?)?;
    let networks = arguments.map(|text| parse_network(&text));
    let proxies: TrustedProxies = networks.collect::<Result<_, _>>()?;

    let limits = RateLimitLayer::new(Arc::new(Gate::new(MemoryStore::new(), rules)))
        .trusted_proxies(proxies)
        .peer_address(|request| {
            let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
            Some(peer.0.ip())
        })
        .attributes(|request, attributes| {
            if let Some(user) = request.headers.get("x-user") {
                attributes.set("user_id", user.to_str().unwrap_or_default())?;
            }
            Ok(())
        })
        .cost(|request| {
            if request.uri.path() == "/export" {
                2
            } else {
                1
            }
        });
    let app = Router::new()
        .fallback(any(async || "served\n"))
        .layer(limits)
        .into_make_service_with_connect_info::<SocketAddr>();
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
