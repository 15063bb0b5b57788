//! A client of xDS management servers.
//!
//! It follows all resources of one type over the aggregated stream, state of the world: each response has all of them.
//! What they mean is the caller's to say, who accepts a response or refuses it. [`XdsClient::next`] says what happens
//! next; the client never tries again without a pause.
//!
//! - `settings`: which server, as whom, how
//! - `client`: streams, one after the other, and the pauses between them
//! - `stream`: one stream: requests, responses, how it ends
//! - `connect`: TCP, TLS with files that are read for each connection, HTTP/2
//! - `watched`: how a connection failed
//! - `pause`: how long to wait
//! - `proto`: the messages
//! - `error`: why there is no stream
//!
//! Why not with tonic: `docs/decisions/020-xds-client.md`.

#![forbid(unsafe_code)]

mod client;
mod connect;
mod error;
mod outgoing;
mod pause;
#[doc(hidden)]
pub mod proto;
mod settings;
mod stream;
mod watched;

pub use client::{XdsClient, XdsEvent, XdsResponse};
pub use error::XdsError;
pub use pause::RetryTimes;
pub use settings::{ServerAddress, XdsSettings, XdsTls};
