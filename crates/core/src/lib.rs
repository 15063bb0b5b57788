//! Rate limits that are exact: whole numbers, whole microseconds, never over the limit.
//!
//! This crate is the part of Tidegate that everything else stands on:
//!
//! - [`limit`]: what an operator may ask for, parsed and validated.
//! - [`algorithm`]: the seven algorithms as pure functions of (limit, state, cost, now).
//! - [`store`]: the contract of whatever holds the state, and [`memory`], the in-memory store.
//! - [`clock`]: where the time comes from.
//! - [`headers`]: what a client is told, as names and values.
//!
//! An application that wants one limiter and no ceremony finds it in the crate `tidegate`.

pub mod algorithm;
mod calendar;
pub mod clock;
pub mod headers;
pub mod limit;
pub mod memory;
pub mod outcome;
pub mod permit;
pub mod store;
pub mod time;

pub use clock::{Clock, ManualClock, SystemClock};
pub use limit::{Algorithm, Anchor, Limit, LimitError, Rate, Window};
pub use memory::{MemoryStats, MemoryStore, Restored, Snapshot, SnapshotError};
pub use outcome::{Outcome, Retry};
pub use permit::PermitId;
pub use store::{Charge, Outcomes, Request, Scope, SharedStore, Store, StoreError};
pub use time::{Micros, Timestamp};
