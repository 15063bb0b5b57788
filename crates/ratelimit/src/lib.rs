//! What Tidegate needs to serve in place of envoyproxy/ratelimit: its variables, its answers, its stats. No I/O: the
//! server reads the environment, serves the ports and sends the stats.

#![forbid(unsafe_code)]

pub mod go;
mod mode;

pub use mode::EnvoyRatelimit;
