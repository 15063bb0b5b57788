//! Shared by the benchmarks in Rust: the libraries to compare, streams of keys, medians of many turns.
//!
//! The runner is `bench/scoreboard`: it starts these programs, pins them, and writes the results.

pub mod contenders;
pub mod keys;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The median.
pub fn median(mut turns: Vec<f64>) -> f64 {
    turns.sort_unstable_by(f64::total_cmp);
    turns[turns.len() / 2]
}

/// User and system time of a process so far, in microseconds.
pub fn cpu_micros(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("its times");
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks: f64 =
        fields[11].parse::<f64>().unwrap_or(0.0) + fields[12].parse::<f64>().unwrap_or(0.0);
    // A tick is a hundredth of a second wherever Linux runs.
    ticks * 10_000.0
}

/// The output of a future that never waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}
