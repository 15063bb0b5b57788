//! What must hold for any input of a parser, as one function for each parser.
//!
//! The fuzzers in `fuzz/` call these functions with inputs that they make up, `tests/corpus.rs` with those that are
//! kept. Each function panics if what it states does not hold; inputs that a parser refuses are fine.

#![forbid(unsafe_code)]
#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is how a check says that it failed"
)]

pub mod check_body;
pub mod condition;
pub mod descriptors;
pub mod forwarded;
pub mod grpc;
pub mod http1_answer;
pub mod http1_request;
mod hyper_client;
mod hyper_server;
pub mod import;
pub mod kept_rules;
pub mod log_lines;
mod memory_stream;
pub mod model_answer;
pub mod model_request;
pub mod path;
pub mod redis_replies;
pub mod resp;
pub mod rules;
pub mod snapshot;

/// A parser, and what must hold for it.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// The name of its fuzzer, and of the folder of its corpus.
    pub name: &'static str,
    /// Panics if something does not hold for these bytes.
    pub check: fn(&[u8]),
}

/// All of them.
#[rustfmt::skip]
pub const TARGETS: [FuzzTarget; 17] = [
    FuzzTarget { name: "check_body",    check: check_body::check },
    FuzzTarget { name: "condition",     check: condition::check },
    FuzzTarget { name: "descriptors",   check: descriptors::check },
    FuzzTarget { name: "forwarded",     check: forwarded::check },
    FuzzTarget { name: "grpc",          check: grpc::check },
    FuzzTarget { name: "http1_answer",  check: http1_answer::check },
    FuzzTarget { name: "http1_request", check: http1_request::check },
    FuzzTarget { name: "import",        check: import::check },
    FuzzTarget { name: "kept_rules",    check: kept_rules::check },
    FuzzTarget { name: "log_lines",     check: log_lines::check },
    FuzzTarget { name: "model_answer",  check: model_answer::check },
    FuzzTarget { name: "model_request", check: model_request::check },
    FuzzTarget { name: "path",          check: path::check },
    FuzzTarget { name: "redis_replies", check: redis_replies::check },
    FuzzTarget { name: "resp",          check: resp::check },
    FuzzTarget { name: "rules",         check: rules::check },
    FuzzTarget { name: "snapshot",      check: snapshot::check },
];
