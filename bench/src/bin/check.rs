//! Time per check: Tidegate, governor and throttlecrab in turns, in one process.
//!
//! Each turn is short and the limiters alternate, so that what the machine does meanwhile hits all
//! of them alike. Formatting the key is counted for all. Printed: the median turn, and its ratio to
//! governor's.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use tidegate_bench::contenders::{Contender, Governor, Throttlecrab, Tidegate};
use tidegate_bench::keys::Spread;
use tidegate_bench::median;

const TURNS: usize = 21;
const CHECKS: usize = 300_000;

fn main() {
    let spreads = [
        Spread::Uniform(1),
        Spread::Uniform(10_000),
        Spread::Uniform(1_000_000),
        Spread::Zipf(1_000_000),
    ];
    println!("ns per check, median of {TURNS} interleaved turns of {CHECKS} checks a thread");
    println!(
        "{:<14}{:>8}  {:>10}{:>10}{:>14}{:>10}",
        "keys", "threads", "tidegate", "governor", "throttlecrab", "ratio"
    );
    for spread in spreads {
        let contenders: [&dyn Contender; 3] =
            [&Tidegate::new(), &Governor::new(), &Throttlecrab::new()];
        for contender in contenders {
            fill(contender, spread.keys());
        }
        for threads in [1, 2] {
            let streams: Vec<_> = (0..threads)
                .map(|thread| spread.stream(CHECKS, 7 + thread))
                .collect();
            let mut turns = [const { Vec::new() }; 3];
            for _ in 0..TURNS {
                for (contender, turns) in contenders.iter().zip(&mut turns) {
                    turns.push(turn(*contender, &streams));
                }
            }
            let [tidegate, governor, throttlecrab] = turns.map(median);
            println!(
                "{:<14}{threads:>8}  {tidegate:>10.1}{governor:>10.1}{throttlecrab:>14.1}{:>10.2}",
                spread.name(),
                tidegate / governor,
            );
        }
    }
}

fn fill(contender: &dyn Contender, keys: u32) {
    let mut key = String::new();
    for number in 0..keys {
        format_key(&mut key, number);
        contender.check(&key);
    }
}

/// Nanoseconds of wall time for one check, with as many threads as streams.
fn turn(contender: &dyn Contender, streams: &[Vec<u32>]) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for stream in streams {
            scope.spawn(move || {
                let mut key = String::new();
                for number in stream {
                    format_key(&mut key, *number);
                    black_box(contender.check(&key));
                }
            });
        }
    });
    started.elapsed().as_nanos() as f64 / CHECKS as f64
}

fn format_key(key: &mut String, number: u32) {
    key.clear();
    let _ = write!(key, "user:{number}");
}
