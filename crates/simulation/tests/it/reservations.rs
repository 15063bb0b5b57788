//! The first seeds with reservations keep every promise, and planted bugs are found. `./scripts/long reservations` runs more
//! of them.

use tidegate_simulation::seeds::{RESERVATION_BUGS, run_reservations};

/// Runs seeds, and panics with all that break a promise.
fn run_seeds(seeds: std::ops::Range<u64>) {
    let mut broken = Vec::new();
    let (mut made, mut settled, mut unanswered) = (0, 0, 0);
    for seed in seeds {
        let report = run_reservations(seed, &[]);
        made += report.made;
        settled += report.settled;
        unanswered += report.unanswered;
        for promise in report.broken {
            broken.push(format!(
                "{promise}; run ./scripts/long reservations {seed} 1"
            ));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(
        made > 400 && settled > 200 && unanswered > 20,
        "{made}, {settled}, {unanswered}"
    );
}

// In two parts, so that they run side by side.

#[test]
fn the_first_twenty_seeds_with_reservations_keep_every_promise() {
    run_seeds(1..21);
}

#[test]
fn the_second_twenty_seeds_with_reservations_keep_every_promise() {
    run_seeds(21..41);
}

#[test]
fn a_seed_with_reservations_gives_the_same_run_every_time() {
    for seed in 1..=2 {
        let [once, again] = [(); 2].map(|()| run_reservations(seed, &[]));
        assert_eq!(
            (once.trace, once.made),
            (again.trace, again.made),
            "seed {seed}"
        );
    }
}

#[test]
fn planted_bugs_of_reservations_are_found() {
    let missed = RESERVATION_BUGS.iter().filter(|bug| bug.find().is_none());
    let missed: Vec<&str> = missed.map(|bug| bug.name).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
