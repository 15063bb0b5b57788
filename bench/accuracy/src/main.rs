//! What limiters admit of the same arrivals: `accuracy GROUP [ARGUMENTS]` prints one line of JSON for each run.
//!
//! | group | what decides | time |
//! | --- | --- | --- |
//! | `memory` | the memory store | virtual |
//! | `concurrency` | the memory store, for requests in progress | virtual |
//! | `exact`, `leased` | 1 to 8 instances on one simulated Redis | virtual |
//! | `redis` | two instances on a real Redis | virtual |
//! | `peers` | governor and throttlecrab | virtual |
//! | `limits PYTHON WORKER` | the Python package `limits` | virtual |
//! | `nginx PROGRAM` | `limit_req` of nginx | real |
//!
//! `bench/accuracy_page` runs the groups, stores their lines, judges them and writes the page.

mod concurrency;
mod memory;
mod nginx;
mod peers;
mod redis;
mod row;
mod scenario;
mod simulated;

use std::process::ExitCode;

use simulated::Sync;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["memory"] => memory::run(),
        ["concurrency"] => concurrency::run(),
        ["redis"] => redis::run(),
        ["exact"] => simulated::run(Sync::Exact, None),
        ["exact", scenario] => simulated::run(Sync::Exact, Some(scenario)),
        ["leased"] => simulated::run(Sync::Leased, None),
        ["leased", scenario] => simulated::run(Sync::Leased, Some(scenario)),
        ["peers"] => peers::run(),
        ["limits", python, worker] => peers::run_limits(python, worker),
        ["nginx", program] => nginx::run(program),
        _ => {
            let groups = "memory | concurrency | redis | peers";
            eprintln!("usage: accuracy {groups} | exact [SCENARIO] | leased [SCENARIO]");
            eprintln!("     | limits PYTHON WORKER | nginx PROGRAM");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
