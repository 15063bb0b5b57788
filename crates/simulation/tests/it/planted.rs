//! Bugs that are planted into the script are found.

use tidegate_simulation::seeds::{PLANTED_BUGS, PlantedBug, run_seed};

/// The first seed that finds a bug, and what it says.
fn found(bug: &PlantedBug) -> Option<(u64, String)> {
    (1..=bug.within).find_map(|seed| {
        let report = run_seed(seed, bug.changes);
        let broken = report.broken.into_iter().next()?;
        Some((seed, broken))
    })
}

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in PLANTED_BUGS {
        match found(bug) {
            Some((seed, broken)) => println!("{}: seed {seed}: {broken}", bug.name),
            None => missed.push(bug.name),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
