//! What Tidegate says to Redis or Valkey and reads from it, without I/O: the names of keys, the script that decides, its
//! steps and its replies.
//!
//! `tidegate-redis` sends them over connections of its own. Programs that have a Redis client make the command of a
//! [step](wire::LuaStep) here, send it, and have the reply decoded:
//!
//! ```
//! use tidegate_core::{Charge, Limit, Request, Scope};
//! use tidegate_redis_wire::keys::{KeySecret, RedisKeys, SecretFrom};
//! use tidegate_redis_wire::plan::Plan;
//! use tidegate_redis_wire::wire::{LuaStep, evalsha};
//!
//! let keys = RedisKeys::new(None, KeySecret::new(SecretFrom::Public));
//! let (scope, limit) = (Scope::new("per-user@user_id"), "100/minute".parse::<Limit>()?);
//! let charges = [Charge { scope: &scope, limit: &limit, key: "user_42", cost: 1 }];
//! let step = LuaStep::charge(&keys, &Plan::new(&keys, &Request::new(&charges)));
//! let command: Vec<Vec<u8>> = evalsha(&[&step]);
//! assert_eq!(command[0], b"EVALSHA");
//! assert_eq!(command[3], b"tg:{user_42}:per-user@user_id:tb:1m");
//! # Ok::<(), tidegate_core::LimitError>(())
//! ```
//!
//! With the feature `redis`, commands and values are also those of the crate `redis`.

#![forbid(unsafe_code)]

pub mod keys;
pub mod namespace;
pub mod plan;
pub mod script;
pub mod value;
pub mod wire;
