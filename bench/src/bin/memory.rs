//! Resident memory per key, each limiter in a process of its own: ten million distinct String keys.
//!
//! `memory` runs itself once for each limiter; `memory NAME KEYS` is one such run.

use std::fmt::Write;
use std::process::Command;

use tidegate_bench::contenders::{Contender, Governor, Throttlecrab, Tidegate};

const KEYS: u64 = 10_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(name), Some(keys)) => fill(&name, keys.parse().expect("a number of keys")),
        _ => {
            println!("resident bytes per key, {KEYS} distinct String keys, all live");
            for name in ["tidegate", "governor", "throttlecrab"] {
                let program = std::env::current_exe().expect("this program's path");
                let run = Command::new(program)
                    .args([name, &KEYS.to_string()])
                    .status();
                assert!(run.is_ok_and(|status| status.success()), "{name} failed");
            }
        }
    }
}

fn fill(name: &str, keys: u64) {
    let contender: Box<dyn Contender> = match name {
        "tidegate" => Box::new(Tidegate::new()),
        "governor" => Box::new(Governor::new()),
        "throttlecrab" => Box::new(Throttlecrab::new()),
        _ => panic!("unknown limiter `{name}`"),
    };
    let mut key = String::new();
    let before = resident();
    for number in 0..keys {
        key.clear();
        let _ = write!(key, "user:{number}");
        assert!(contender.check(&key));
    }
    println!(
        "{name:<14}{:>8.1}",
        (resident() - before) as f64 / keys as f64
    );
}

/// This process's resident memory in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux's /proc");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("VmRSS");
    let kilobytes: u64 = line
        .trim()
        .trim_end_matches(" kB")
        .trim()
        .parse()
        .expect("kilobytes");
    kilobytes * 1_024
}
