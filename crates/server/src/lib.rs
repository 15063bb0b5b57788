//! The Tidegate service as a library: front ends, admin API, rule sources and telemetry.
//!
//! A program reads a [`Config`], opens a [`Service`], binds [`Listeners`] and runs it until its
//! [`Handle`] says that it should end:
//!
//! ```no_run
//! use tidegate_server::{Config, Handle, Listeners, Overrides, run};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let overrides = Overrides { environment: &|_| None, variables: vec![], flags: vec![("http", "127.0.0.1:0".into())] };
//! let config = Config::load(&overrides)?;
//! let listeners = Listeners::bind(&config).await?;
//! run(config, listeners, Handle::new()).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod access;
mod activity;
mod admin;
mod admin_token;
mod body_memory;
mod certificate_files;
mod chores;
mod condition_steps;
pub mod config;
pub mod data_dir;
mod debug;
mod decider;
mod digest_secret;
mod file_descriptors;
mod followed_xds;
mod front_ends;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod handle;
mod http;
mod identity_warnings;
mod kept_counters;
mod kept_instances;
mod listeners;
mod meant;
mod memory_limit;
mod metrics_page;
mod open;
mod open_streams;
mod otlp;
mod overlay_file;
mod overrides;
mod prices;
mod problem;
mod prometheus;
mod ratelimit_stats;
mod record;
mod recorded;
mod resp;
mod rule_folder;
pub mod rulebook;
mod run;
mod run_error;
mod seconds;
mod shared_document;
mod shared_rules;
mod store;
mod telemetry;
mod token_files;
mod turns;
mod untrusted_proxies;
pub mod watch;

pub use config::{Config, Overrides};
pub use file_descriptors::raise_descriptor_limit;
pub use handle::Handle;
pub use http::explain_offline;
pub use listeners::Listeners;
pub use open::{Service, check_files};
/// The messages of OTLP, for tests.
#[doc(hidden)]
pub use otlp::proto as otlp_messages;
pub use run::run;
pub use run_error::RunError;
pub use telemetry::start_logs;
/// The messages of gRPC, for tests.
#[doc(hidden)]
pub use tidegate_codec::grpc::proto as grpc_messages;
pub use tidegate_identity::IdentityError;

/// The program in the README of the project compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
