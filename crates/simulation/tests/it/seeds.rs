//! The first seeds keep every promise. `./scripts/long seeds` runs more of them.

use tidegate_simulation::seeds::run_seed;

/// Runs seeds, and panics with all that break a promise.
fn run_seeds(seeds: std::ops::Range<u64>) {
    let mut broken = Vec::new();
    let (mut measured, mut degraded) = (0, 0);
    for seed in seeds {
        let report = run_seed(seed, &[]);
        measured += u64::from(report.used.is_some());
        degraded += report.degraded;
        for promise in report.broken {
            broken.push(format!("{promise}; run ./scripts/long seeds {seed} 1"));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(measured > 5 && degraded > 100, "{measured}, {degraded}");
}

// In two parts, so that they run side by side.

#[test]
fn the_first_hundred_seeds_keep_every_promise() {
    run_seeds(1..101);
}

#[test]
fn the_second_hundred_seeds_keep_every_promise() {
    run_seeds(101..201);
}
