//! Joins the paths of several servers into one rule, where their exceptions alone differ.

use crate::hosts;
use crate::model::VirtualServer;
use crate::region::{ExceptItem, PathRegion};

/// Joins regions that differ in exceptions alone: those of some servers get their hosts.
pub(crate) fn merged(
    alike: Vec<(PathRegion, Vec<usize>)>,
    servers: &[VirtualServer],
) -> Vec<(PathRegion, Vec<usize>)> {
    let mut joined: Vec<(PathRegion, Vec<usize>)> = Vec::new();
    for (region, numbers) in alike {
        let with_same_paths = joined
            .iter_mut()
            .find(|(known, _)| known.paths == region.paths && known.condition == region.condition);
        let Some((known, known_numbers)) = with_same_paths else {
            joined.push((region, numbers));
            continue;
        };
        let common: Vec<_> = known
            .except
            .iter()
            .filter(|item| region.except.contains(item))
            .cloned()
            .collect();
        let special = |of: &PathRegion, numbers: &[usize]| {
            let items = of.except.iter().filter(|item| !common.contains(item));
            let items: Vec<_> = items.cloned().collect();
            with_hosts(items, numbers, servers)
        };
        let (Some(first), Some(second)) =
            (special(known, known_numbers), special(&region, &numbers))
        else {
            joined.push((region, numbers));
            continue;
        };
        known.except = [common, first, second].concat();
        known_numbers.extend(numbers);
    }
    joined
}

/// Exceptions for these servers alone. None if their hosts cannot stand in an exception.
fn with_hosts(
    items: Vec<ExceptItem>,
    numbers: &[usize],
    servers: &[VirtualServer],
) -> Option<Vec<ExceptItem>> {
    if items.is_empty() {
        return Some(items);
    }
    let mut hosts = Vec::new();
    for number in numbers {
        hosts.extend(hosts::plain_names(servers, *number)?);
    }
    let with_host = |item: ExceptItem| {
        let mut with_host = ExceptItem::new();
        // One that has its hosts already keeps them.
        with_host.insert("host".to_owned(), serde_json::json!(hosts));
        with_host.extend(item);
        with_host
    };
    Some(items.into_iter().map(with_host).collect())
}
