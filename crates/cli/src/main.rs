//! The `tidegate` program.

mod serve;

use clap::Parser;

#[derive(Parser)]
enum Cli {
    Serve(serve::ServeArgs),
}

fn main() -> std::process::ExitCode {
    let Cli::Serve(args) = Cli::parse();
    serve::run(&args)
}
