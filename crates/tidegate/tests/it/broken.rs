//! One broken file for each mistake, and the message that its writer gets.
//!
//! The messages are snapshots: read them as a person who has to fix the file at night.

#![expect(clippy::unwrap_used, reason = "what cannot be read fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tidegate::document::{Problems, Source};
use tidegate::rules::{RuleSet, RuleSettings};

/// The names of the files in a folder of the tests, without what comes before `prefix` and with
/// what comes after `suffix` cut.
fn names(folder: &str, prefix: &str, suffix: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it")
        .join(folder);
    let name = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
        Some(name.to_owned())
    };
    fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| name(entry.unwrap()))
        .collect()
}

fn source(name: &str) -> Source {
    let file = format!("{name}.yaml");
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/broken")
        .join(&file);
    Source::new(file, fs::read_to_string(path).unwrap())
}

fn problems_of(rules: &Result<RuleSet, Problems>) -> &Problems {
    rules
        .as_ref()
        .map_or_else(|problems| problems, RuleSet::warnings)
}

#[test]
fn every_mistake_is_reported_in_words_that_help() {
    let mut fine = Vec::new();
    for name in names("broken", "", ".yaml") {
        let source = source(&name);
        let rules = RuleSet::read(&source, &RuleSettings::default());
        let problems = problems_of(&rules);
        if problems.is_empty() {
            fine.push(name);
            continue;
        }
        assert_eq!(rules.is_err(), problems.has_errors(), "{name}");
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(name.as_str(), problems.render(&source));
        });
    }
    assert!(fine.is_empty(), "nothing is wrong with {fine:?}");
}

/// A mistake that is reported twice hides the next one.
#[test]
fn every_mistake_is_reported_once() {
    for name in names("broken", "", ".yaml") {
        let source = source(&name);
        let rules = RuleSet::read(&source, &RuleSettings::default());
        let problems = problems_of(&rules);
        let expected = match name.as_str() {
            "algorithm_and_options_wrong" | "all_missing" => 3,
            "merge_key_and_defaults"
            | "algorithm_and_limit_wrong"
            | "anchor_and_limit_wrong"
            | "candidate_and_limit_wrong"
            | "limit_map_window_and_burst_wrong"
            | "override_limit_bad"
            | "ratelimit_and_rules"
            | "slots_do_not_divide_with_tiers" => 2,
            "many_mistakes" => 9,
            "ratelimit_many_mistakes" => 5,
            _ => 1,
        };
        let reported = problems.iter().count();
        assert_eq!(reported, expected, "{name}:\n{}", problems.render(&source));
    }
}

#[test]
fn no_message_is_left_of_a_file_that_is_gone() {
    assert_eq!(
        names("snapshots", "it__broken__", ".snap"),
        names("broken", "", ".yaml")
    );
}
