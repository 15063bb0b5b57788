//! Bugs that are planted into the script are found.

use tidegate_simulation::seeds::{BugScope, PLANTED_BUGS};

/// Looks for the bugs of a scope, and panics with those that no seed finds.
fn find_all(scope: BugScope) {
    let bugs = PLANTED_BUGS.iter().filter(|bug| bug.scope == scope);
    let missed = bugs.filter(|bug| bug.find().is_none());
    let missed: Vec<&str> = missed.map(|bug| bug.name).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

// In parts, so that they run side by side.

#[test]
fn planted_bugs_of_any_limit_are_found() {
    find_all(BugScope::Any);
}

#[test]
fn planted_bugs_of_leased_buckets_are_found() {
    find_all(BugScope::LeasedBuckets);
}

#[test]
fn planted_bugs_of_units_left_over_in_buckets_are_found() {
    find_all(BugScope::LeftInBuckets);
}

#[test]
fn planted_bugs_of_units_left_over_in_windows_are_found() {
    find_all(BugScope::LeftInWindows);
}
