//! The program as it is started: arguments in, output and exit code out.

mod commands;
mod scopes;
mod support;
mod validate;
