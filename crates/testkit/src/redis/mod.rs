//! Real Redis and Valkey processes: each belongs to one test, on ports and in a folder of its own, and
//! dies with it.
//!
//! What cannot be started panics: a missing program fails the run and says how to install it.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a server that does not do what it should has failed the test"
)]

mod certificates;
mod cluster;
mod connect;
mod options;
mod process;
mod program;
mod promotion;
mod replication;
mod sentinel;
mod server;

pub use certificates::Certificates;
pub use cluster::{Cluster, Migration, SLOTS, slot_of, tag_of};
pub use options::{ClientCertificates, RedisOptions};
pub use program::Program;
pub use promotion::Promotion;
pub use sentinel::Sentinel;
pub use server::RedisServer;
