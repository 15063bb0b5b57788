//! The crates depend on each other as the drawing in `ARCHITECTURE.md` says, and no other way.

#![expect(clippy::expect_used, reason = "a test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

type Edges = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders under `crates/` and their packages' names.
fn packages() -> (Vec<Value>, BTreeMap<String, String>) {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    let folder = |package: &Value| {
        let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
        let folder = manifest
            .parent()
            .and_then(|folder| folder.file_name())
            .expect("a folder");
        folder.to_string_lossy().into_owned()
    };
    let name = |package: &Value| package["name"].as_str().expect("a name").to_owned();
    let folders = packages
        .iter()
        .map(|package| (name(package), folder(package)))
        .collect();
    (packages, folders)
}

/// What depends on what, without what only tests need.
fn built() -> Edges {
    let (packages, folders) = packages();
    let mut edges = Edges::new();
    for package in &packages {
        let from = &folders[package["name"].as_str().expect("a name")];
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let needed = dependencies
            .iter()
            .filter(|dependency| dependency["kind"].is_null());
        let names = needed.filter_map(|dependency| dependency["name"].as_str());
        let inside = names.filter_map(|name| folders.get(name).cloned());
        edges.entry(from.clone()).or_default().extend(inside);
    }
    edges
}

/// The arrows of the drawing: lines of the form `cli → server, tidegate`.
fn drawn() -> Edges {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page is there");
    let arrows = page.lines().filter_map(|line| line.split_once(" → "));
    let targets = |list: &str| {
        list.split(", ")
            .map(|name| name.trim().to_owned())
            .collect()
    };
    arrows
        .map(|(from, to)| (from.trim().to_owned(), targets(to)))
        .collect()
}

#[test]
fn the_crates_depend_on_each_other_as_drawn() {
    let (built, drawn) = (built(), drawn());
    assert!(drawn.len() >= 2, "the drawing has arrows");
    for (from, to) in &built {
        let allowed = drawn.get(from).cloned().unwrap_or_default();
        assert_eq!(
            to, &allowed,
            "what `{from}` depends on, and what the drawing says"
        );
    }
    for from in drawn.keys() {
        assert!(built.contains_key(from), "`{from}` is drawn and not there");
    }
}

/// What a lock file says that our packages depend on, without versions.
fn locked(text: &str) -> Edges {
    let packages = text.split("[[package]]").filter_map(|package| {
        let name = package
            .lines()
            .find_map(|line| line.strip_prefix("name = "))?;
        let listed = package
            .split_once("dependencies = [")
            .map_or("", |(_, list)| list);
        let listed = listed
            .lines()
            .filter_map(|line| line.trim().strip_prefix('"'));
        let names = listed.filter_map(|line| line.split(['"', ' ']).next());
        let is_ours = !package.contains("source = ");
        is_ours.then(|| {
            let name = name.trim_matches('"').to_owned();
            (name, names.map(str::to_owned).collect())
        })
    });
    packages.collect()
}

#[test]
fn the_lock_file_of_the_benchmarks_is_up_to_date() {
    let text = std::fs::read_to_string(root().join("bench/Cargo.lock")).expect("it is there");
    let locked = locked(&text);
    let (packages, _) = packages();
    let mut compared = 0;
    for package in &packages {
        let name = package["name"].as_str().expect("a name");
        let Some(known) = locked.get(name) else {
            continue;
        };
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let needed = dependencies
            .iter()
            .filter(|dependency| dependency["kind"] != "dev");
        let names = needed.filter_map(|dependency| dependency["name"].as_str());
        let needed: BTreeSet<String> = names.map(str::to_owned).collect();
        assert_eq!(
            known, &needed,
            "`{name}` in bench/Cargo.lock; run `cargo metadata` in bench"
        );
        compared += 1;
    }
    assert!(compared >= 3, "the benchmarks use our crates");
}
