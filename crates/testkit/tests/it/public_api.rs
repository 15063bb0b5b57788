//! The public API of the published crates is the one that `docs/api` lists, one line for each item. A line that
//! changes or disappears breaks programs that use it. Hidden items are not listed: they may change at any time.
//!
//! `./scripts/public-api` runs this test, and `./scripts/public-api --write` renews the lists.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test may, and new lists are asked for by a variable"
)]

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::published::PUBLISHED;

/// The format of rustdoc's JSON that the crate `public-api` reads: the one of Rust 1.95.
const FORMAT: u64 = 57;

/// Rustdoc writes JSON only as an unstable feature. The variable that permits it is set for rustdoc alone: build
/// scripts of dependencies look at it, and all would be built again.
const RUSTDOC: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";

/// Documents the published crates as JSON. Returns the folder.
fn document() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let rustdoc = temporary.join("rustdoc-json");
    fs::write(&rustdoc, RUSTDOC).expect("it can be written");
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755)).expect("it can be run");
    let target = temporary.parent().expect("the target directory");
    let output = Command::new(env!("CARGO"))
        .args(["doc", "--lib", "--no-deps", "--locked", "--offline"])
        .args(PUBLISHED.iter().flat_map(|package| ["-p", package]))
        .args([
            "--features",
            "tidegate/cel,tidegate-tower/cel,tidegate-core/conformance",
        ])
        .arg("--target-dir")
        .arg(target)
        .current_dir(root())
        .env("RUSTDOC", &rustdoc)
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json")
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    target.join("doc")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn format_version(json: &Path) -> Option<u64> {
    let text = fs::read(json).expect("rustdoc has written it");
    let json: Value = serde_json::from_slice(&text).expect("it is JSON");
    json["format_version"].as_u64()
}

/// The public items of a crate, without what every type has. What has two paths is listed once.
fn items(json: &Path) -> String {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .expect("it can be read");
    let mut listed = HashSet::new();
    let lines = api.items().map(|item| format!("{item}\n"));
    lines.filter(|line| listed.insert(line.clone())).collect()
}

/// The lines that only one of two lists has, with a sign for which.
fn differences(listed: &str, found: &str) -> String {
    let missing = listed
        .lines()
        .filter(|line| !found.lines().any(|other| other == *line));
    let new = found
        .lines()
        .filter(|line| !listed.lines().any(|other| other == *line));
    let lines = missing.map(|line| format!("- {line}\n"));
    lines.chain(new.map(|line| format!("+ {line}\n"))).collect()
}

#[test]
fn the_public_api_is_the_listed_one() {
    let documented = document();
    let is_renewed = std::env::var_os("PUBLIC_API").is_some_and(|value| value == "write");
    let mut changed = String::new();
    for package in PUBLISHED {
        let json = documented
            .join(package.replace('-', "_"))
            .with_extension("json");
        if format_version(&json) != Some(FORMAT) {
            println!("not compared: this rustdoc writes another format than that of Rust 1.95");
            return;
        }
        let list = root().join(format!("docs/api/{package}.txt"));
        let found = items(&json);
        if is_renewed {
            fs::write(&list, found).expect("the list can be written");
            continue;
        }
        let listed =
            fs::read_to_string(&list).unwrap_or_else(|error| panic!("{}: {error}", list.display()));
        changed += &differences(&listed, &found);
    }
    assert!(
        changed.is_empty(),
        "if this is intended, run ./scripts/public-api --write:\n{changed}"
    );
}
