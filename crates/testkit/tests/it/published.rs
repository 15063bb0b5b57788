//! What is published: six crates, which depend on nothing that is not.

#![expect(clippy::expect_used, reason = "a test may")]

use std::collections::BTreeSet;

use serde_json::Value;

use crate::architecture::packages;

/// The crates that programs depend on. The others are parts of the server, or test it.
pub(crate) const PUBLISHED: [&str; 6] = [
    "tidegate",
    "tidegate-core",
    "tidegate-redis",
    "tidegate-redis-wire",
    "tidegate-tower",
    "tidegate-usage",
];

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a name")
}

/// Cargo reports the registries that a package may be published to: none are an empty list, all are null.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

#[test]
fn six_crates_are_published() {
    let (packages, _) = packages();
    let published: BTreeSet<_> = packages
        .iter()
        .filter(|package| is_published(package))
        .map(name)
        .collect();
    assert_eq!(published, BTreeSet::from(PUBLISHED));
    for package in packages.iter().filter(|package| is_published(package)) {
        for field in ["description", "documentation", "license", "readme"] {
            assert!(package[field].is_string(), "{} has {field}", name(package));
        }
    }
}

#[test]
fn what_is_published_depends_on_nothing_unpublished() {
    let (packages, folders) = packages();
    let mut inner_dependencies = 0;
    for package in packages.iter().filter(|package| is_published(package)) {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        for dependency in dependencies {
            let (from, to) = (name(package), name(dependency));
            if !folders.contains_key(to) {
                continue;
            }
            inner_dependencies += 1;
            if dependency["kind"] == "dev" {
                // Cargo leaves it out of the package if it has no version.
                let has_version = dependency["req"] != "*";
                assert!(
                    PUBLISHED.contains(&to) || !has_version,
                    "the tests of `{from}` need a version of `{to}`, which is not published"
                );
            } else {
                assert!(
                    PUBLISHED.contains(&to),
                    "`{from}` needs `{to}`, which is not published"
                );
            }
        }
    }
    assert!(
        inner_dependencies >= 6,
        "{inner_dependencies} were looked at"
    );
}
