//! What the program is made of, as far as cargo itself can say: licences, sources and banned crates by `deny.toml`, and
//! no `unsafe` code. `./scripts/supply-chain` checks the rest.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The only files with `unsafe` code: a test that counts allocations, and the names that WebAssembly exports.
const EXCEPTIONS: [&str; 2] = [
    "crates/core/tests/allocations.rs",
    "bindings/node/src/exports.rs",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(root().join(path));
    text.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The texts of the list under a key of `deny.toml`.
fn listed(key: &str) -> BTreeSet<String> {
    let text = read("deny.toml");
    let list = text.split_once(&format!("\n{key} = ["));
    let (_, list) = list.unwrap_or_else(|| panic!("deny.toml has `{key}`"));
    let (list, _) = list.split_once("\n]").expect("the list ends");
    let lines = list.lines().map(str::trim);
    let texts = lines.filter_map(|line| line.strip_prefix('"')?.strip_suffix("\","));
    texts.map(str::to_owned).collect()
}

fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    let output = command.args(arguments).current_dir(root()).output();
    let output = output.expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("cargo writes text")
}

/// The packages of this workspace, and all that they depend on.
fn packages() -> Vec<Value> {
    let versions = cargo(&["-vV"]);
    let host = versions
        .lines()
        .find_map(|line| line.strip_prefix("host: "));
    // What other platforms need may not have been downloaded.
    let platform = ["--filter-platform", host.expect("cargo knows its host")];
    let metadata = ["metadata", "--format-version", "1", "--locked", "--offline"];
    let metadata = cargo(&[&metadata[..], &platform].concat());
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo metadata is JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// Whether a licence expression can be met by allowed licences alone.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // Older packages separate choices with a slash.
    let expression = expression.replace('/', " OR ").replace(" or ", " OR ");
    let (mut depth, mut parts, mut current) = (0_u32, Vec::new(), String::new());
    for letter in expression.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        current.push(letter);
        if depth == 0 && current.ends_with(" AND ") {
            parts.push(current.trim_end_matches(" AND ").to_owned());
            current.clear();
        }
    }
    parts.push(current);
    parts.iter().all(|part| {
        let choices = part.trim().trim_matches(['(', ')']);
        choices
            .split(" OR ")
            .any(|choice| allowed.contains(choice.trim()))
    })
}

#[test]
fn licences_are_allowed_by_what_they_say() {
    let allowed = ["MIT", "ISC", "Apache-2.0"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0", false),
        ("MIT/GPL-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", false),
        ("ISC AND (Apache-2.0 OR GPL-3.0)", true),
        ("Apache-2.0 WITH LLVM-exception", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn every_dependency_has_an_allowed_licence_and_comes_from_crates_io() {
    let (allowed, packages) = (listed("allow"), packages());
    assert!(allowed.len() > 5 && packages.len() > 200, "they were read");
    for package in &packages {
        let name = package["name"].as_str().expect("a name");
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_allowed(licence, &allowed), "`{name}` has `{licence}`");
        let source = package["source"].as_str();
        let is_ours = source.is_none() && name.starts_with("tidegate");
        assert!(
            is_ours || source == Some(CRATES_IO),
            "`{name}` comes from {source:?}"
        );
    }
}

#[test]
fn no_banned_crate_is_in_a_lock_file() {
    let banned = listed("deny");
    assert!(banned.len() > 4, "they were read");
    for lock in [
        "Cargo.lock",
        "fuzz/Cargo.lock",
        "bindings/node/Cargo.lock",
        "bindings/python/Cargo.lock",
    ] {
        let text = read(lock);
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix("name = \""));
        let names: BTreeSet<&str> = names.map(|name| name.trim_end_matches('"')).collect();
        let found: Vec<_> = banned
            .iter()
            .filter(|name| names.contains(name.as_str()))
            .collect();
        assert!(found.is_empty(), "{lock} has {found:?}");
        let sources = text
            .lines()
            .filter_map(|line| line.strip_prefix("source = "));
        for source in sources {
            assert_eq!(source.trim_matches('"'), CRATES_IO, "{lock}");
        }
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn unsafe_code_is_forbidden_in_every_crate() {
    for entry in fs::read_dir(root().join("crates")).expect("the folder is there") {
        let source = entry.expect("an entry").path().join("src");
        let roots = ["lib.rs", "main.rs"].map(|name| source.join(name));
        let roots: Vec<_> = roots.iter().filter(|path| path.exists()).collect();
        assert!(!roots.is_empty(), "{} has code", source.display());
        for path in roots {
            let text = fs::read_to_string(path).expect("a source file");
            assert!(
                text.contains("#![forbid(unsafe_code)]"),
                "{}",
                path.display()
            );
        }
    }
    for manifest in [
        "bench/Cargo.toml",
        "bench/store/Cargo.toml",
        "bindings/python/Cargo.toml",
        "bindings/python/reference/Cargo.toml",
    ] {
        assert!(
            read(manifest).contains("unsafe_code = \"forbid\""),
            "{manifest}"
        );
    }
    assert!(
        read("Cargo.toml").contains("unsafe_code = \"deny\""),
        "for tests"
    );
}

#[test]
fn no_other_file_has_unsafe_code() {
    let (root, mut files) = (root(), Vec::new());
    for folder in ["crates", "bench", "bindings", "fuzz"] {
        rust_files(&root.join(folder), &mut files);
    }
    assert!(files.len() > 300, "only {} files were found", files.len());
    let has_unsafe = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a source file");
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let mut words = code
            .flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
        // This file names it in texts.
        words.any(|word| word == "unsafe") && !path.ends_with("supply_chain.rs")
    };
    let found: Vec<&Path> = files
        .iter()
        .filter(|path| has_unsafe(path))
        .map(|path| path.strip_prefix(&root).expect("it is below"))
        // The word in a policy for browsers.
        .filter(|path| !path.ends_with("server/tests/it/http/console.rs"))
        .collect();
    assert_eq!(found, EXCEPTIONS.map(Path::new));
}

/// Tests may be built with more features than the program, so that no test of the comparison itself shows it.
#[test]
fn the_program_bounds_the_time_of_comparisons() {
    let tree = ["tree", "--offline", "--locked", "-p", "tidegate-cli"];
    let features = ["-e", "normal", "--prefix", "none", "-f", "{p} {f}"];
    let tree = cargo(&[&tree[..], &features].concat());
    let similar = tree.lines().find(|line| line.starts_with("similar v"));
    let similar = similar.expect("the program compares texts");
    let features = similar.rsplit(' ').find(|word| word.contains("text"));
    let has_std = |features: &str| features.split(',').any(|feature| feature == "std");
    assert!(features.is_some_and(has_std), "{similar}");
}
