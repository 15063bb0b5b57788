//! Questions and answers as bytes: JSON, the Redis protocol (RESP), and Envoy's rate limit service over gRPC.
//!
//! Nothing here reads a connection, knows a server or decides: bytes become attributes and charges, decisions become
//! bytes. So it can be measured and fuzzed without the rest. Connections, access control and the gate are the server's.
//!
//! - [`json`]: the bodies of `POST /v1/check` and of its batch.
//! - [`resp`]: commands and replies, with the arguments and answers of `CL.THROTTLE` and `TG.CHECK`.
//! - [`grpc`]: length-prefixed messages, and those of Envoy as parts of a request and as an answer.
//! - [`record`]: decisions as the lines of a recording.

#![forbid(unsafe_code)]

mod error;
pub mod grpc;
pub mod json;
pub mod record;
pub mod resp;
mod seconds;

pub use error::CodecError;
pub use seconds::write_seconds;
