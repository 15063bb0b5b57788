//! The state of limits in Redis or Valkey, shared by many instances: standalone, Sentinel, Cluster.
//!
//! [`RedisStore`] is a [`RemoteStore`](tidegate_core::RemoteStore) with the same answers as the store in memory: every
//! decision is made by one script, which mirrors the algorithms of `tidegate-core` function by function.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use tidegate::Limiter;
//! use tidegate_redis::{RedisSettings, RedisStore};
//!
//! // Connects in the background.
//! let store = RedisStore::open(RedisSettings::new("redis://127.0.0.1:6379".parse()?));
//! store.connected(Duration::from_secs(2)).await?;
//!
//! let limiter = Limiter::builder("100/minute").build_shared("api", store.clone())?;
//! if limiter.check("user_42").await?.is_denied() {
//!     println!("too many requests, over all instances");
//! }
//! // Gives back what this instance took in advance.
//! store.leave().await;
//! # Ok(()) }
//! ```
//!
//! `Gate::new(store, rules)` decides by rules instead; each rule then says what happens while Redis is
//! unavailable.

#![forbid(unsafe_code)]

mod activity;
mod arrivals;
mod backoff;
mod call;
mod cluster;
mod damage;
mod dial;
mod document;
mod follow_master;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod hints;
mod instances;
mod kept;
mod known_instances;
mod leases;
mod link;
mod monotonic;
mod network;
mod questions;
mod router;
mod sentinel;
mod settings;
mod shared_activity;
mod stats;
mod store;
mod url;

pub use activity::{MOST_ACTIVITY, PublishedActivity, is_instance};
pub use damage::Damage;
pub use document::{RedisDocument, Written};
pub use health::{Breaker, Health};
pub use known_instances::{KnownInstance, KnownInstances};
pub use network::{ConnectingToRedis, NetworkConnection, NetworkStream, RedisNetwork};
pub use questions::MOST_QUESTION;
pub use settings::{CallObserver, RedisSettings, RedisTls};
pub use stats::Stats;
pub use store::RedisStore;
pub use tidegate_redis_wire::namespace::{Namespace, NamespaceError};
pub use url::{RedisUrl, UrlError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
