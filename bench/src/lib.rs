//! Shared by the benchmarks: the limiters to compare, streams of keys, medians of many turns.

pub mod contenders;
pub mod keys;
pub mod load;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The median.
pub fn median(mut turns: Vec<f64>) -> f64 {
    turns.sort_unstable_by(f64::total_cmp);
    turns[turns.len() / 2]
}

/// The cost of two contenders: the medians over many turns, and the median of the ratios of each turn.
pub struct Comparison {
    pub ours: f64,
    pub theirs: f64,
    pub ratio: f64,
}

/// Runs two contenders in turns: `turn` returns the cost of the contender at index 0 or 1 in one turn.
pub fn compare(turns: usize, mut turn: impl FnMut(usize) -> f64) -> Comparison {
    let (mut ratios, mut costs) = (Vec::new(), [Vec::new(), Vec::new()]);
    for number in 0..turns {
        let mut cost = [0.0; 2];
        // The order alternates from turn to turn.
        for index in [number % 2, (number + 1) % 2] {
            cost[index] = turn(index);
            costs[index].push(cost[index]);
        }
        ratios.push(cost[0] / cost[1]);
    }
    let [ours, theirs] = costs.map(median);
    Comparison {
        ours,
        theirs,
        ratio: median(ratios),
    }
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
