//! The program as it is started: arguments in, output and exit code out.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod commands;
mod support;
mod validate;
