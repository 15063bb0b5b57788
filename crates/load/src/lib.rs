//! A load generator: sends requests to a server, and measures how many it answers and how long each takes.
//!
//! [`LoadPlan`] has the amount, [`Target`] the requests and the server, [`run`] sends them and returns a
//! [`LoadReport`]. Nothing here knows about limits, except that an answer can be a denial.

#![forbid(unsafe_code)]

mod clock;
mod connect;
mod error;
mod keys;
mod pace;
mod plan;
mod protocol;
mod record;
mod report;
mod run;
mod template;

pub use connect::{Endpoint, LoadTls};
pub use error::LoadRunError;
pub use keys::KeySpread;
pub use plan::{LoadEnd, LoadPlan};
pub use protocol::{GrpcTarget, HttpTarget, LoadCommand, MessageField, RespTarget, Target};
pub use report::{LatencyBucket, LatencyReport, LoadReport};
pub use run::{LoadProgress, run};
pub use template::KeyTemplate;
