//! Rate limits that are exact: whole numbers, whole microseconds, never over the limit.
//!
//! This crate has the types that the other crates of Tidegate share. An application uses the crate `tidegate`, which
//! re-exports most of it; a program that brings its own store implements [`RemoteStore`].
//!
//! A store charges limits for a request, all of them or none:
//!
//! ```
//! use tidegate_core::{Charge, Limit, MemoryStore, Request, Scope};
//!
//! let store = MemoryStore::new();
//! let scope = Scope::new("api");
//! let limits: [Limit; 2] = ["10/minute".parse()?, "2/second".parse()?];
//! let charge = |limit| Charge { scope: &scope, limit, key: "user_42", cost: 1 };
//! let outcomes = store.charge(&Request::new(&limits.each_ref().map(charge)));
//! assert!(outcomes.iter().all(|outcome| outcome.allowed));
//! assert_eq!(outcomes[1].remaining, 1);
//! # Ok::<(), tidegate_core::LimitError>(())
//! ```
//!
//! An algorithm is a pure function of a limit, a state, a cost and the time: [`algorithm`] has them for programs
//! that keep the state themselves.
//!
//! | | |
//! | --- | --- |
//! | [`limit`] | limits: parsed, validated |
//! | [`algorithm`] | the seven algorithms |
//! | [`outcome`] | the answer of one limit |
//! | [`store`] | where state is kept: [`Store`], and the contract of a store behind a network, [`RemoteStore`] |
//! | [`memory`] | the store in memory, and its snapshots |
//! | [`permit`] | the ids of permits, for concurrency limits |
//! | [`reservation`] | an estimate that is charged first and settled later |
//! | [`clock`], [`time`] | where the time comes from; points in time and spans |
//! | [`headers`] | the response headers that describe a decision |
//!
//! # Features
//!
//! | feature | brings | default |
//! | --- | --- | --- |
//! | `system-clock` | `SystemClock` | yes |
//! | `random-permits` | random bytes from the operating system: `PermitId::random` | yes |
//! | `conformance` | the tests that every store passes, for stores of your own | no |
//!
//! `MemoryStore::new` and `MemoryStore::builder` need both. Without them this crate asks the operating system for
//! nothing, and runs where there is none, such as on `wasm32-unknown-unknown`: the program brings a [`Clock`], the
//! secret of [`MemoryStore::builder_with`], and the ids of permits.

#![forbid(unsafe_code)]

pub mod algorithm;
mod calendar;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod costs;
pub mod headers;
pub mod limit;
pub mod memory;
pub mod outcome;
pub mod permit;
pub mod reservation;
pub mod store;
pub mod time;

#[cfg(feature = "system-clock")]
pub use clock::SystemClock;
pub use clock::{Clock, ManualClock};
pub use costs::{CostUnit, Costs, CostsError, MAX_COST, MAX_UNITS};
pub use limit::{Algorithm, Anchor, Limit, LimitError, Rate, Window, WorstCase};
pub use memory::{MemoryStats, MemoryStore, Restored, Snapshot, SnapshotError};
pub use outcome::{Outcome, Outcomes, Retry};
pub use permit::PermitId;
pub use reservation::{
    Adjusted, AdjustedCharge, AdjustedCharges, Adjustment, ExtendAnswer, MadeReservation,
    ReservationId, ReservationPart, ReserveRequest, Reserved, ReservedCharge, SettleAnswer,
    SettleRequest, StoredReservation,
};
pub use store::{Charge, RemoteStore, Request, Scope, Store, StoreError, StoreFuture};
pub use time::{Micros, Timestamp};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
