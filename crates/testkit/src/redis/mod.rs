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
mod options;
mod process;
mod program;
mod server;

pub use certificates::Certificates;
pub use options::{ClientCertificates, RedisOptions};
pub use program::Program;
pub use server::RedisServer;
