//! The `tidegate` program: `serve`, and the commands that call a running server.
//!
//! Options are in `arguments.rs`, exit codes in `exit.rs`, commands in `commands/`, one file each.

#![forbid(unsafe_code)]

mod arguments;
mod client;
mod commands;
mod completions;
mod exit;
mod manual;
mod output;
mod schema;
mod serve;
mod times;
mod tips;

use std::ffi::OsString;
use std::process::ExitCode;

use arguments::Command;

/// A server allocates and frees small objects on every core, which the system's allocator does slowly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(ignored) = serve::arguments_of_envoy_ratelimit(&words) {
        return serve::run_as_envoy_ratelimit(ignored);
    }
    let cli = match tips::parse(words) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    cli.color.apply();
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Settings(args) => exit::finish(false, commands::settings::run(&args)),
        Command::Check(args) => exit::finish(args.server.json, commands::check::run(&args)),
        Command::Reserve(args) => {
            exit::finish(args.server.json, commands::reservations::reserve(&args))
        }
        Command::Settle(args) => {
            exit::finish(args.server.json, commands::reservations::settle(&args))
        }
        Command::Cancel(args) => {
            exit::finish(args.server.json, commands::reservations::cancel(&args))
        }
        Command::Explain(args) => exit::finish(args.server.json, commands::explain::run(&args)),
        Command::Denied(args) => exit::finish(args.server.json, commands::denied::run(&args)),
        Command::Console(args) => exit::finish(args.server.json, commands::console::run(&args)),
        Command::Bench(args) => exit::finish(args.server.json, commands::bench::run(&args)),
        Command::Rules(args) => exit::finish(args.server.json, commands::rules::run(&args)),
        Command::Reset(args) => exit::finish(args.server.json, commands::reset::run(&args)),
        Command::Simulate(args) => exit::finish(args.json, commands::simulate::run(&args)),
        Command::Status(args) => exit::finish(args.server.json, commands::status::run(&args)),
        Command::Top(args) => exit::finish(args.server.json, commands::top::run(&args)),
        Command::Override(args) => exit::finish(args.server.json, commands::overrides::run(&args)),
        Command::Import(args) => exit::finish(false, commands::import::run(&args)),
        Command::Schema(args) => exit::finish(false, schema::run(&args)),
        Command::Completions(args) => exit::finish(false, completions::run(&args)),
        Command::Manual(args) => exit::finish(false, manual::run(&args)),
    }
}
