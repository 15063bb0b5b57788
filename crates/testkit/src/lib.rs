//! What Tidegate's own tests share: known answers of other limiters, random
//! limits and timelines, figures of accuracy, real Redis processes and a proxy that breaks the network in front of them.

#![forbid(unsafe_code)]

pub mod accuracy;
mod block_on;
mod budget;
mod failing_store;
pub mod fault_proxy;
mod http_server;
mod json_schema;
pub mod linearizability;
pub mod nginx;
mod port;
mod raw_client;
pub mod redis;
pub mod timeline;
pub mod vectors;
mod wait;

pub use block_on::block_on;
pub use budget::{BUDGET, BudgetFrontEnd, LEAST_ESTIMATE, five_callers};
pub use failing_store::{FailingStore, StoreState};
pub use fault_proxy::FaultProxy;
pub use http_server::{HttpAnswer, HttpServer};
pub use json_schema::JsonSchema;
pub use port::ReservedPort;
pub use raw_client::{RawConnection, eventually, header, within};
pub use tidegate_core::conformance::{self, ModelState};
pub use wait::{now, wait_until};
