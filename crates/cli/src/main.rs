//! The `tidegate` program: `serve`, and the commands that ask a server that runs.
//!
//! Options are in `arguments.rs`, exit codes in `exit.rs`, one file per command below `commands/`.

mod arguments;
mod client;
mod commands;
mod completions;
mod exit;
mod output;
mod schema;
mod serve;
mod times;
mod yaml;

use std::process::ExitCode;

use arguments::{Cli, Command};
use clap::Parser as _;

/// A server allocates and frees small things on every core, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.color.apply();
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => exit::finish(args.server.json, commands::check::run(&args)),
        Command::Rules(args) => exit::finish(args.server.json, commands::rules::run(&args)),
        Command::Schema(args) => exit::finish(false, schema::run(&args)),
        Command::Completions(args) => exit::finish(false, completions::run(&args)),
    }
}
