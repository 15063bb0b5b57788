//! Bugs that are planted into the script are found.

use tidegate_simulation::seeds::PLANTED_BUGS;

#[test]
fn every_planted_bug_is_found() {
    let missed = PLANTED_BUGS.iter().filter(|bug| bug.find().is_none());
    let missed: Vec<&str> = missed.map(|bug| bug.name).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
