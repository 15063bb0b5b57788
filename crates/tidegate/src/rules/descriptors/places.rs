//! Keys that envoyproxy/ratelimit accepts anywhere in a file, but reads only in one kind of map.

use crate::internal::document::{Fields, Key, Problems};
use crate::rules::keys::{DESCRIPTOR, DOMAIN, RATE_LIMIT};

/// Every key that the original knows, and where it has an effect.
fn everywhere() -> impl Iterator<Item = (&'static str, &'static str)> {
    let levels: [(&[Key], _); 3] = [
        (&DOMAIN, "at the top of the file"),
        (&DESCRIPTOR, "next to a `key`"),
        (&RATE_LIMIT, "in a `rate_limit`"),
    ];
    let rows = levels.into_iter().flat_map(|(level, place)| {
        let place_of = move |row: &Key| match row.name {
            "key" => "in an item of `descriptors`",
            "descriptors" => "at the top of the file, or next to a `key`",
            _ => place,
        };
        level.iter().map(move |row| (row.name, place_of(row)))
    });
    rows.filter(|(name, _)| *name != "tidegate")
}

/// The keys that have no effect in a map with these keys, each with the place where it has.
fn others(keys: &[Key]) -> impl Iterator<Item = (&'static str, &'static str)> {
    everywhere().filter(|(name, _)| keys.iter().all(|row| row.name != *name))
}

/// The warning for each key that has no effect in a map with these keys.
pub(in crate::rules) fn ignored(keys: &[Key]) -> impl Iterator<Item = (&'static str, String)> {
    others(keys).map(|(name, place)| (name, warning(name, place)))
}

fn warning(name: &str, place: &str) -> String {
    format!("`{name}` has no effect here, as in envoyproxy/ratelimit; it belongs {place}")
}

/// Warns of keys that the original knows but that have no effect in a map with these keys.
pub(super) fn ignore_others(fields: &mut Fields<'_>, keys: &[Key], problems: &mut Problems) {
    for (name, place) in others(keys) {
        if fields.key(name).is_some() {
            fields.ignore(name, &warning(name, place), problems);
        }
    }
}
