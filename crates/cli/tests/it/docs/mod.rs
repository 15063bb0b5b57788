//! The documentation keeps step with the program: what it shows can be loaded, and what there is, it names.

mod commands;
mod envoy_ratelimit;
mod examples;
mod links;
mod migrating;
mod outside_tools;
mod pictures;
mod played;
mod schema;

use std::fs;
use std::path::{Path, PathBuf};

use tidegate::document::Key;
use tidegate::rules::RuleSet;
use tidegate_server::config::SETTINGS;
use tidegate_server::{Config, Overrides};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The pages of the documentation, by name.
fn pages() -> Vec<(String, String)> {
    let top = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "charts/tidegate/README.md",
        "proofs/README.md",
    ];
    let mut pages = Vec::from(top.map(|name| (name.to_owned(), page(name))));
    for folder in ["docs", "docs/guides", "docs/reference", "docs/decisions"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = format!("{folder}/{}", entry.unwrap().file_name().display());
            if Path::new(&name).extension().is_some_and(|end| end == "md") {
                let text = page(&name);
                pages.push((name, text));
            }
        }
    }
    pages
}

/// The YAML blocks that begin with a line, each with the page and the line that it stands on.
fn blocks(first: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    for (name, text) in pages() {
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            if line == "```yaml" {
                let body = lines.by_ref().map(|(_, line)| line);
                let body: Vec<&str> = body.take_while(|line| *line != "```").collect();
                if body.first() == Some(&first) {
                    blocks.push((format!("{name}:{}", number + 2), body.join("\n")));
                }
            }
        }
    }
    blocks
}

#[test]
fn every_rule_that_is_shown_can_be_used() {
    let rules = blocks("rules:");
    assert!(rules.len() > 20, "only {} were found", rules.len());
    let exempting = blocks("exempt:");
    assert!(!exempting.is_empty(), "none was found");
    for (position, text) in rules.into_iter().chain(exempting) {
        let rules = RuleSet::from_yaml(&text);
        assert!(rules.is_ok(), "{position}: {rules:?}");
    }
}

/// Only the rule that the guides explain: a request without its identity is left to another rule.
#[test]
fn the_rules_that_are_shown_give_no_warnings() {
    for (name, text) in blocks("rules:") {
        let rules = RuleSet::from_yaml(&text).unwrap();
        let is_explained = |message: &str| message.contains("escapes this rule");
        let is_of_envoy = name.contains("guides/envoy.md");
        let mut others = rules.warnings().warnings();
        assert!(
            others.all(|warning| is_explained(&warning.message) && !is_of_envoy),
            "{name}: {}",
            rules.warnings()
        );
    }
}

#[test]
fn every_configuration_that_is_shown_can_be_loaded() {
    let blocks = blocks("# tidegate.yaml");
    assert!(blocks.len() >= 3, "only {} were found", blocks.len());
    let folder = tempfile::tempdir().unwrap();
    for (position, text) in blocks {
        let file = folder.path().join("tidegate.yaml");
        fs::write(&file, text).unwrap();
        let overrides = Overrides {
            environment: &|name| {
                ["_TOKEN", "_AUTHORIZATION"]
                    .iter()
                    .any(|end| name.ends_with(end))
                    .then(|| "secret".to_owned())
            },
            variables: Vec::new(),
            flags: vec![("config", file.display().to_string())],
        };
        let loaded = Config::load(&overrides);
        assert!(loaded.is_ok(), "{position}: {}", loaded.unwrap_err());
    }
}

/// The cells of the tables on a page.
fn rows(page: &str) -> Vec<Vec<String>> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = |line: &str| {
        let cells = line.split('|').skip(1);
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

/// Whether a cell begins with the default of a key, if it has one.
fn says_default(cell: &str, key: &Key) -> bool {
    let default = key.default.replace('"', "");
    default.is_empty() || cell.starts_with(&format!("`{default}`")) || cell == default
}

#[test]
fn every_setting_is_on_its_page() {
    let rows = rows(&page("docs/reference/config.md"));
    for setting in &SETTINGS {
        let flag = setting.flag().map(|(flag, _)| format!("--{flag}"));
        let names = [Some(setting.key.name.to_owned()), setting.variable(), flag];
        let names = names.map(|name| name.map_or(String::new(), |name| format!("`{name}`")));
        let row = rows.iter().find(|row| row.starts_with(&names));
        let row = row.unwrap_or_else(|| panic!("no row begins with {names:?}"));
        assert!(says_default(&row[3], &setting.key), "{row:?}");
    }
}

#[test]
fn every_key_of_a_rule_is_on_its_page() {
    let rows = rows(&page("docs/reference/rules.md"));
    for key in tidegate::rules::keys() {
        let name = format!("`{}`", key.name);
        let row = rows
            .iter()
            .find(|row| row[0].split(", ").any(|cell| cell == name));
        let row = row.unwrap_or_else(|| panic!("no row begins with {name}"));
        let is_alone = row[0] == name;
        assert!(!is_alone || says_default(&row[2], key), "{row:?}");
    }
}

/// The code of the source files below a folder, without its tests.
fn source_files(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            files.push(text.split("#[cfg(test)]").next().unwrap().to_owned());
        }
    }
}

#[test]
fn every_metric_is_on_its_page() {
    let page = page("docs/reference/metrics.md");
    let mut files = Vec::new();
    for name in ["gateway", "identity", "listen", "server"] {
        source_files(&root().join("crates").join(name).join("src"), &mut files);
    }
    let code = files.concat();
    let calls = [
        "registry.register(",
        "registry.register_with_unit(",
        "register_counter(",
    ];
    let names_of = |call| {
        let arguments = code.split(call).skip(1).map(str::trim_start);
        let names = arguments.map(|rest| rest.trim_start_matches("registry,").trim_start());
        names.filter_map(|rest| rest.strip_prefix('"')?.split('"').next())
    };
    let names: Vec<&str> = calls.into_iter().flat_map(names_of).collect();
    assert!(names.len() > 15, "only {names:?} were found");
    for name in names {
        let is_there = ["", "_total", "_seconds", "_bytes"]
            .iter()
            .any(|ending| page.contains(&format!("| `tidegate_{name}{ending}` |")));
        assert!(is_there, "{name}");
    }
}
