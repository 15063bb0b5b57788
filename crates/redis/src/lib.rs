//! The state of limits in Redis or Valkey, shared by many instances: standalone, Sentinel, Cluster.

mod keys;
mod script;
mod wire;
