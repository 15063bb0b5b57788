//! What limiters admit of the same arrivals: `accuracy GROUP [ARGUMENTS]` prints one line of JSON for each run.
//!
//! | group | what decides | time |
//! | --- | --- | --- |
//! | `memory` | the memory store | virtual |
//! | `peers` | governor and throttlecrab | virtual |
//! | `limits PYTHON WORKER` | the Python package `limits` | virtual |
//! | `nginx PROGRAM` | `limit_req` of nginx | real |
//!
//! `bench/accuracy_page` runs the groups, stores their lines, judges them and writes the page.

mod memory;
mod nginx;
mod peers;
mod row;
mod scenario;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["memory"] => memory::run(),
        ["peers"] => peers::run(),
        ["limits", python, worker] => peers::run_limits(python, worker),
        ["nginx", program] => nginx::run(program),
        _ => {
            eprintln!("usage: accuracy memory | peers | limits PYTHON WORKER | nginx PROGRAM");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
