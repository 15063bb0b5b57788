//! The Python package `limits`, in a process of its own in which the time is that of the arrivals.

use std::fmt::Write as _;
use std::process::Command;

use tidegate_core::{Algorithm, Anchor, Micros};
use tidegate_testkit::accuracy::{DecidedArrival, Judge};

use super::RETRIED;
use crate::row::{Contender, Retries, row, skipped};
use crate::scenario::Scenario;

/// Each strategy, and the algorithm of ours that it resembles.
fn strategies() -> [(&'static str, Algorithm); 3] {
    let first = Algorithm::FixedWindow {
        anchor: Anchor::FirstRequest,
    };
    [
        ("FixedWindowRateLimiter", first),
        ("MovingWindowRateLimiter", Algorithm::SlidingWindowLog),
        (
            "SlidingWindowCounterRateLimiter",
            Algorithm::SlidingWindowCounter,
        ),
    ]
}

pub fn run(python: &str, worker: &str) {
    for scenario in Scenario::all() {
        for (strategy, algorithm) in strategies() {
            if let Err(why) = run_one(&scenario, strategy, algorithm, [python, worker]) {
                println!("{}", skipped(&scenario, &name(strategy), algorithm, &why));
            }
        }
    }
}

fn name(strategy: &str) -> String {
    format!("limits, {}", strategy.trim_end_matches("RateLimiter"))
}

fn run_one(
    scenario: &Scenario,
    strategy: &str,
    algorithm: Algorithm,
    [python, worker]: [&str; 2],
) -> Result<(), String> {
    let arrivals = scenario.arrivals();
    let mut text = String::new();
    for arrival in &arrivals {
        let _ = writeln!(text, "{} {}", arrival.at.as_micros(), arrival.key);
    }
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    std::fs::write(file.path(), text).map_err(|error| error.to_string())?;
    let output = Command::new(python)
        .args([worker, strategy, &scenario.plan.count.to_string()])
        .arg(RETRIED.to_string())
        .arg(file.path())
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    // The first line has a digit for each arrival, the others a retry each.
    let decisions = lines.next().unwrap_or_default().as_bytes();
    if !output.status.success() || decisions.len() != arrivals.len() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = errors.lines().last().unwrap_or("no answer");
        return Err(last.to_owned());
    }
    let limit = scenario.limit(algorithm);
    let mut judge = Judge::new(&limit).map_err(|error| error.to_string())?;
    for (arrival, decision) in arrivals.iter().zip(decisions) {
        judge.take(DecidedArrival {
            at: arrival.at,
            key: arrival.key,
            allowed: *decision == b'1',
            delay: Micros::ZERO,
        });
    }
    let mut retries = Retries::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [then, before, after] = words[..] else {
            return Err(format!("it printed `{line}`"));
        };
        retries.add((then == "1", before == "1"));
        retries.after = Some(retries.after.unwrap_or(0) + u64::from(after == "1"));
    }
    let contender = Contender {
        name: &name(strategy),
        store: "",
        instances: 1,
        is_virtual: true,
    };
    let figures = judge.finish();
    println!("{}", row(scenario, &contender, &limit, &figures, Some(retries)));
    Ok(())
}
