//! What Tidegate needs to serve in place of envoyproxy/ratelimit: its variables, its answers, its stats. No I/O: the
//! server reads the environment, serves the ports and sends the stats.

#![forbid(unsafe_code)]

pub mod json;
mod listed;
mod mode;
mod names;
pub mod stats;
pub mod variables;

pub use listed::listed;
pub use mode::EnvoyRatelimit;
