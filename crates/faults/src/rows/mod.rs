//! All rows of the suite, in the order of the page. A file for each family; a row is a function that does what its title says.

mod clocks;
mod cluster;
mod files;
mod redis_data;
mod redis_network;
mod redis_process;
mod reservations;
mod resources;
mod sentinel;
mod servers;

use crate::row::{FaultGroup, FaultRow};

/// Every row, in the order in which they run and are printed.
pub(crate) fn all() -> Vec<FaultRow> {
    let redis = [
        redis_process::ROWS,
        redis_network::ROWS,
        redis_data::ROWS,
        clocks::REDIS_ROWS,
        sentinel::ROWS,
        cluster::ROWS,
    ];
    let others = [
        servers::ROWS,
        files::ROWS,
        clocks::ROWS,
        reservations::ROWS,
        resources::ROWS,
    ];
    let mut rows = Vec::new();
    for family in redis.iter().chain(&others) {
        rows.extend_from_slice(family);
    }
    rows
}

/// The rows of a table.
pub(crate) fn of(group: FaultGroup) -> Vec<FaultRow> {
    let mut rows = all();
    rows.retain(|row| row.group == group);
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn rows_have_names_of_their_own() {
        let rows = super::all();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), rows.len());
        assert!(rows.iter().any(|row| row.is_short));
    }
}
