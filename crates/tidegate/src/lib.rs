//! Exact rate limiting for Rust services: whole numbers, whole microseconds, never over the limit, and a
//! retry-after that is true.
//!
//! There are three ways in.
//!
//! # A limiter
//!
//! [`Limiter`] counts keys against limits that are written in code:
//!
//! ```
//! use tidegate::Limiter;
//!
//! let limiter = Limiter::new("3/minute")?;
//! for _ in 0..3 {
//!     assert!(limiter.check("user_42").is_allowed());
//! }
//! let denied = limiter.check("user_42");
//! assert!(denied.is_denied());
//! println!("{} left, try again in {:?}", denied.remaining(), denied.retry_after());
//! # Ok::<(), tidegate::LimitError>(())
//! ```
//!
//! [`Limiter::acquire`] waits for its turn instead. Limits are written as people say them:
//! `100/minute burst 20`, `10 per 2 hours`, or several that must all agree, `10/minute; 2/second`;
//! [`Algorithm`] lists the ways to count them. [`SharedLimiter`] has the same methods, to be awaited, and counts in a
//! store that several instances share, such as the one of `tidegate-redis`.
//!
//! # A gate with rules
//!
//! [`Gate`] decides requests by rules, which say what a limit applies to and whom it counts. They come from
//! YAML, or from [`Rule::builder`](rules::Rule::builder), and can be replaced while requests are decided:
//!
#![cfg_attr(feature = "rules", doc = "```")]
#![cfg_attr(not(feature = "rules"), doc = "```text")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::rules::RuleSet;
//! use tidegate::{Attributes, Gate, MemoryStore};
//!
//! let rules = RuleSet::from_yaml("
//! rules:
//!   - {id: login, match: {path: /login, method: POST}, per: [ip], limit: 3/minute}
//!   - {id: per-user, match: {path: /v1/**}, per: [user_id], limit: 100/minute}
//! ")?;
//! let gate = Gate::new(MemoryStore::new(), rules);
//!
//! let mut request = Attributes::new();
//! request.insert("path", "/v1/orders")?;
//! request.insert("user_id", "u1")?;
//! let decision = gate.decide(&request).await;
//! assert!(decision.is_allowed());
//! assert_eq!(decision.rule(), Some("per-user"));
//! # Ok(()) }
//! ```
//!
//! # Middleware
//!
//! The crate `tidegate-tower` puts a gate in front of an axum, hyper or tonic service. Denied clients get 429
//! with a problem document, or `RESOURCE_EXHAUSTED` over gRPC; all get the `RateLimit` headers:
//!
#![cfg_attr(feature = "rules", doc = "```")]
#![cfg_attr(not(feature = "rules"), doc = "```text")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::net::SocketAddr;
//! use std::sync::Arc;
//!
//! use axum::{Router, extract::ConnectInfo, routing::get};
//! use tidegate::rules::RuleSet;
//! use tidegate::{Gate, MemoryStore};
//! use tidegate_tower::RateLimitLayer;
//!
//! let rules = RuleSet::from_yaml("rules: [{id: per-address, per: [ip], limit: 100/minute}]")?;
//! let gate = Arc::new(Gate::new(MemoryStore::new(), rules));
//! let limits = RateLimitLayer::new(gate).peer_address(|request| {
//!     let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
//!     Some(peer.0.ip())
//! });
//! let app: Router = Router::new()
//!     .route("/orders", get(async || "no orders yet"))
//!     .layer(limits);
//! # Ok(()) }
//! ```
//!
//! # Where to find what
//!
//! | | |
//! | --- | --- |
//! | [`Limiter`], [`LimiterBuilder`], [`Permit`] | one limiter without rules; over a shared store, [`SharedLimiter`] |
//! | [`Limit`], [`Algorithm`], [`limit`] | what may be granted, and how it is counted |
//! | [`Gate`], [`Attributes`], [`Costs`], [`Decision`], [`gate`] | deciding by rules; what is known of a request, and what it costs; the answer |
//! | [`Gate::maintain`] | what runs in the background |
//! | [`rules`] | rules: read, built, written down |
//! | [`headers`] | what a client learns of a decision, as HTTP headers |
//! | [`store`], [`memory`] | where counters are kept; a store of one's own is a [`RemoteStore`] |
//! | [`ManualClock`], [`TokioClock`] | time that tests control |
//! | [`address`], [`host`], [`path`] | for front ends: the one form of what clients send |
//!
//! # Examples
//!
//! In the folder `examples`, each a program of its own:
//!
//! | | |
//! | --- | --- |
//! | `per_user` | several limits for each user |
//! | `downstream` | calls to another service that wait until its limit allows them |
//! | `threads` | a limiter that threads share, without an asynchronous runtime |
//! | `synchronous` | a gate in a program without an asynchronous runtime |
//! | `settle` | a cost that is known only afterwards |
//! | `reload` | rules that are replaced while requests are decided |
//! | `observer` | seeing every decision of a gate |
//!
//! # Features
//!
//! | feature | brings | default |
//! | --- | --- | --- |
//! | `rules` | rules, the gate and YAML | yes |
//! | `cel` | conditions in rules (`when`); turns `rules` on | no |
//!
//! With `default-features = false` there is the limiter alone, and none of their dependencies.
#![cfg_attr(not(feature = "rules"), allow(rustdoc::broken_intra_doc_links))]
#![forbid(unsafe_code)]

mod acquire;
#[cfg(feature = "rules")]
mod adaptive;
#[cfg(feature = "rules")]
pub mod address;
#[cfg(feature = "rules")]
mod attributes;
mod clock;
#[cfg(feature = "rules")]
mod credentials;
#[cfg(feature = "rules")]
pub mod gate;
#[cfg(feature = "rules")]
pub mod host;
mod internal;
mod limiter;
mod limiter_decision;
#[cfg(feature = "rules")]
pub mod path;
#[cfg(feature = "rules")]
mod reason;
#[cfg(feature = "rules")]
pub mod rules;
#[cfg(feature = "rules")]
mod value;

pub use acquire::{AcquireError, Permit, ReservedTurn, SharedPermit, Turn};
#[cfg(feature = "rules")]
pub use adaptive::{AdaptiveBounds, AdaptiveLimit, Ended};
#[cfg(feature = "rules")]
pub use attributes::{AttributeError, Attributes, MAX_ATTRIBUTES, MAX_NAME, MAX_VALUE};
pub use clock::TokioClock;
#[cfg(feature = "rules")]
#[doc(hidden)]
pub use credentials::credentials_in;
#[cfg(feature = "rules")]
pub use credentials::{CredentialError, CredentialProblem, InvalidCredentials, credentials};
#[cfg(feature = "rules")]
pub use gate::{Decision, Gate};
#[doc(hidden)]
pub use internal::printable;
#[cfg(feature = "rules")]
#[doc(hidden)]
pub use internal::{document, white_space};
pub use limiter::{Limiter, LimiterBuilder, SharedLimiter};
pub use limiter_decision::LimiterDecision;
#[cfg(feature = "rules")]
pub use reason::Reason;
#[cfg(feature = "rules")]
pub use value::AttributeValue;

pub use tidegate_core::{
    Algorithm, Anchor, Clock, CostUnit, Costs, CostsError, Limit, LimitError, MAX_COST, MAX_UNITS,
    ManualClock, MemoryStats, MemoryStore, Micros, Outcome, PermitId, Rate, RemoteStore,
    ReservationId, Retry, Store, StoreError, SystemClock, Timestamp, Window, WorstCase, headers,
    limit, memory, store,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
