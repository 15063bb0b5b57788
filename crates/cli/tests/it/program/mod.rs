//! The program as it is started: arguments in, output and exit code out.

mod commands;
mod import;
mod rules_test;
mod scopes;
mod simulate;
mod support;
mod validate;
