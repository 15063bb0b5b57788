//! Keys that envoyproxy/ratelimit accepts anywhere in a file and reads in one place only.

use crate::document::{Fields, Problems};

/// Every key that the original knows, and where it has an effect.
const KEYS: [(&str, &str); 16] = [
    ("domain", "at the top of the file"),
    ("descriptors", "at the top of the file, or next to a `key`"),
    ("key", "in an item of `descriptors`"),
    ("value", "next to a `key`"),
    ("rate_limit", "next to a `key`"),
    ("shadow_mode", "next to a `key`"),
    ("quota_mode", "next to a `key`"),
    ("share_threshold", "next to a `key`"),
    ("detailed_metric", "next to a `key`"),
    ("value_to_metric", "next to a `key`"),
    ("metadata", "next to a `key`"),
    ("unit", "in a `rate_limit`"),
    ("requests_per_unit", "in a `rate_limit`"),
    ("unlimited", "in a `rate_limit`"),
    ("name", "in a `rate_limit`"),
    ("replaces", "in a `rate_limit`"),
];

/// Warns of the keys of a map that the original knows and that have no effect there: those that were not
/// taken.
pub(super) fn ignore_others(fields: &mut Fields<'_>, problems: &mut Problems) {
    for (key, place) in KEYS {
        let message =
            format!("`{key}` has no effect here, as in envoyproxy/ratelimit; it belongs {place}");
        fields.ignore(key, &message, problems);
    }
}
