//! The state of limits in Redis or Valkey, shared by many instances: standalone, Sentinel, Cluster.
//!
//! [`RedisStore`] is a [`Store`](tidegate_core::Store) like the one in memory, with the same answers.
//! Every decision is made by one script (`lua/`), which mirrors the algorithms of `tidegate-core`
//! function by function.

mod arrivals;
mod backoff;
mod call;
mod cluster;
mod damage;
mod dial;
mod health;
mod hints;
mod instances;
mod keys;
mod leases;
mod link;
mod monotonic;
mod namespace;
mod plan;
mod router;
mod rules;
mod script;
mod sentinel;
mod settings;
mod stats;
mod store;
mod url;
mod wire;

pub use damage::Damage;
pub use health::Health;
pub use instances::{KnownInstance, KnownInstances};
pub use namespace::{Namespace, NamespaceError};
pub use rules::{NewRules, Written};
pub use settings::{RedisSettings, RedisTls};
pub use stats::Stats;
pub use store::RedisStore;
pub use url::{RedisUrl, UrlError};
