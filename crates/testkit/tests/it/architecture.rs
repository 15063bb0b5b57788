//! The crates depend on each other as the drawing in `ARCHITECTURE.md` says, and no other way; the limiter alone
//! needs few of them; modules do not depend on each other in circles; no two types share a name; no file is too long;
//! the files and functions that pages name exist.

#![expect(clippy::expect_used, reason = "a test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folders below `bindings`, each a workspace of its own.
const BINDINGS: [&str; 2] = ["node", "python"];

type Edges = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders under `crates/` and their packages' names.
pub(crate) fn packages() -> (Vec<Value>, BTreeMap<String, String>) {
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

/// The package of a binding, which is a workspace of its own.
fn binding(folder: &str) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--locked"])
        .current_dir(root().join("bindings").join(folder))
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let name = format!("tidegate-{folder}");
    let found = packages.iter().find(|package| package["name"] == *name);
    found.expect("the binding is there").clone()
}

/// What depends on what, without what only tests need.
fn built() -> Edges {
    let (mut packages, mut folders) = packages();
    for folder in BINDINGS {
        folders.insert(format!("tidegate-{folder}"), format!("bindings/{folder}"));
        packages.push(binding(folder));
    }
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

/// The packages that `tidegate` is built with, by its features.
fn compiled_with(features: &str) -> BTreeSet<String> {
    let tree = ["tree", "-p", "tidegate", "-e", "normal", "--prefix", "none"];
    let output = Command::new(env!("CARGO"))
        .args(tree)
        .args(["--locked", "--offline", "--no-default-features"])
        .args(["--features", features])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let tree = String::from_utf8(output.stdout).expect("names are text");
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn a_user_of_the_limiter_compiles_neither_conditions_nor_yaml() {
    let conditions = ["cel", "regex"];
    let rules = ["saphyr-parser", "serde_json", "jiff", "ipnet", "sha2"];
    let has = |packages: &BTreeSet<String>, name: &str| packages.contains(name);

    let limiter = compiled_with("");
    assert!(has(&limiter, "tidegate-core"), "{limiter:?}");
    for name in conditions.iter().chain(&rules) {
        assert!(!has(&limiter, name), "the limiter alone needs `{name}`");
    }
    for features in ["rules", "default"] {
        let without_conditions = compiled_with(features);
        for name in rules {
            assert!(has(&without_conditions, name), "rules need `{name}`");
        }
        for name in conditions {
            assert!(!has(&without_conditions, name), "rules need `{name}`");
        }
    }
    for name in conditions {
        assert!(has(&compiled_with("cel"), name), "conditions need `{name}`");
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
fn the_lock_files_of_other_workspaces_are_up_to_date() {
    let (packages, _) = packages();
    for workspace in ["bench", "fuzz", "bindings/node", "bindings/python"] {
        let path = root().join(workspace).join("Cargo.lock");
        let text = std::fs::read_to_string(path).expect("it is there");
        let locked = locked(&text);
        let mut compared = 0;
        for package in &packages {
            let name = package["name"].as_str().expect("a name");
            let Some(known) = locked.get(name) else {
                continue;
            };
            let dependencies = package["dependencies"].as_array().expect("dependencies");
            let needed = dependencies.iter().filter(|dependency| {
                let name = dependency["name"].as_str().unwrap_or_default();
                // Optional ones are there only if their feature is on in that workspace.
                let is_left_out = dependency["optional"] == true && !known.contains(name);
                dependency["kind"] != "dev" && !is_left_out
            });
            let names = needed.filter_map(|dependency| dependency["name"].as_str());
            let needed: BTreeSet<String> = names.map(str::to_owned).collect();
            assert_eq!(
                known, &needed,
                "`{name}` in {workspace}/Cargo.lock; run `cargo metadata` in {workspace}"
            );
            compared += 1;
        }
        assert!(compared >= 2, "{workspace} uses our crates");
    }
}

/// A source file, and the top-level module that it belongs to.
struct SourceFile {
    path: PathBuf,
    module: String,
    text: String,
}

/// The source files below a folder, without those of tests.
fn sources(folder: &Path, module: Option<&str>, found: &mut Vec<SourceFile>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy();
        if name == "tests" {
            continue;
        }
        let module = module.unwrap_or(&name);
        if path.is_dir() {
            sources(&path, Some(module), found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let module = module.to_owned();
            found.push(SourceFile { path, module, text });
        }
    }
}

/// What comes after each `crate::`, also in a list in braces.
fn named(code: &str) -> impl Iterator<Item = &str> {
    let paths = code.split("crate::").skip(1).flat_map(|rest| {
        let list = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next());
        list.unwrap_or(rest.lines().next().unwrap_or_default())
            .split(if list.is_some() { ',' } else { '\0' })
    });
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let names = paths.filter_map(move |path| path.trim().split(|letter| !is_part(letter)).next());
    names.filter(|name| !name.is_empty())
}

/// A way from `at` back to a module on the way to it.
fn cycle(edges: &Edges, at: &str, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
    if let Some(start) = way.iter().position(|module| module == at) {
        way.drain(..start);
        way.push(at.to_owned());
        return true;
    }
    if !done.insert(at.to_owned()) {
        return false;
    }
    way.push(at.to_owned());
    if edges
        .get(at)
        .into_iter()
        .flatten()
        .any(|to| cycle(edges, to, way, done))
    {
        return true;
    }
    way.pop();
    false
}

fn find_cycle(edges: &Edges) -> Option<String> {
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    let is_found = edges
        .keys()
        .any(|module| cycle(edges, module, &mut way, &mut done));
    is_found.then(|| way.join(" → "))
}

/// A source file up to its test module.
fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

/// The lines of a source file that are neither comments nor its tests.
fn code(text: &str) -> String {
    let lines = text
        .split("#[cfg(test)]")
        .next()
        .unwrap_or_default()
        .lines();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    lines.filter(is_code).collect::<Vec<_>>().join("\n")
}

/// Which top-level modules of a crate use which others.
fn module_edges(name: &str) -> Edges {
    let mut files = Vec::new();
    sources(
        &root().join("crates").join(name).join("src"),
        None,
        &mut files,
    );
    files.retain(|file| file.module != "lib");
    let modules: BTreeSet<&String> = files.iter().map(|file| &file.module).collect();
    let mut edges = Edges::new();
    for SourceFile { module, text, .. } in &files {
        for used in named(&code(text)) {
            // A re-export of the root would hide its module.
            assert!(
                modules.iter().any(|other| *other == used),
                "`{module}` of `{name}` takes `crate::{used}` from the root; name its module"
            );
            if used != module {
                edges
                    .entry(module.clone())
                    .or_default()
                    .insert(used.to_owned());
            }
        }
    }
    edges
}

#[test]
fn the_modules_of_a_crate_do_not_depend_on_each_other_in_circles() {
    for (name, least) in [("server", 25), ("tidegate", 7), ("redis", 15)] {
        let edges = module_edges(name);
        assert!(edges.len() >= least, "only {edges:?} were found");
        assert_eq!(find_cycle(&edges), None, "a circle of modules of `{name}`");
    }
}

#[test]
fn front_ends_decide_and_do_not_administer() {
    let edges = module_edges("server");
    for front_end in ["grpc", "resp"] {
        assert!(edges[front_end].contains("decider"), "{front_end} decides");
        assert!(
            !edges[front_end].contains("admin"),
            "{front_end} does not administer"
        );
    }
}

/// A longer file has to be split, as `CONTRIBUTING.md` says.
const MOST_LINES: usize = 500;

#[test]
fn no_source_file_is_too_long() {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("the folder is there") {
        sources(
            &entry.expect("an entry").path().join("src"),
            None,
            &mut files,
        );
    }
    for folder in BINDINGS {
        let folder = root().join("bindings").join(folder).join("src");
        sources(&folder, None, &mut files);
    }
    assert!(files.len() > 400, "only {} files were found", files.len());
    for SourceFile { path, text, .. } in &files {
        let lines = without_tests(text).lines().count();
        assert!(
            lines <= MOST_LINES,
            "{} has {lines} lines without its tests; split it by meaning",
            path.display()
        );
    }
}

#[test]
fn tests_and_comments_are_left_out() {
    let text = "//! One.\nuse two;\n    // three\nfn four() {}\n\n#[cfg(test)]\nmod tests {\n    use five;\n}\n";
    assert_eq!(without_tests(text).lines().count(), 4);
    assert_eq!(code(text), "use two;\nfn four() {}\n");
    let helper = "#[cfg(test)]\nfn helper() {}\nfn one() {}\n";
    assert_eq!(without_tests(helper), helper, "only its module is left out");
}

#[test]
fn a_circle_is_found_and_named() {
    let edges = |list: &[(&str, &str)]| {
        let mut edges = Edges::new();
        for (from, to) in list {
            edges
                .entry((*from).to_owned())
                .or_default()
                .insert((*to).to_owned());
        }
        edges
    };
    let tree = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")];
    assert_eq!(find_cycle(&edges(&tree)), None);
    let circle = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")];
    assert_eq!(
        find_cycle(&edges(&circle)).as_deref(),
        Some("b → c → d → b")
    );
    let code = "use crate::one::Two;\nuse crate::{three, four::Five};\n crate::six(7);";
    assert_eq!(
        named(code).collect::<Vec<_>>(),
        ["one", "three", "four", "six"]
    );
}

/// The names of the types that code declares at its top level.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let line = match line.strip_prefix("pub") {
            Some(rest) => rest.split_once(' ')?.1,
            None => line,
        };
        let (keyword, rest) = line.split_once(' ')?;
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        ["struct", "enum", "trait", "type"]
            .contains(&keyword)
            .then(|| rest.split(|letter| !is_part(letter)).next())?
    })
}

#[test]
fn a_type_name_means_one_thing_in_the_workspace() {
    let crates = root().join("crates");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&crates).expect("the folder is there") {
        let source = entry.expect("an entry").path().join("src");
        sources(&source, None, &mut files);
    }
    for folder in BINDINGS {
        let folder = root().join("bindings").join(folder).join("src");
        sources(&folder, None, &mut files);
    }
    // Takes the place of `condition` where the feature `cel` is off.
    files.retain(|file| !file.path.ends_with("rules/no_condition.rs"));
    let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in &files {
        let path = file.path.strip_prefix(&crates).unwrap_or(&file.path);
        for name in declared(&file.text) {
            let paths = names.entry(name).or_default();
            paths.push(path.display().to_string());
        }
    }
    assert!(names.len() > 300, "only {} types were found", names.len());
    names.retain(|_, paths| paths.len() > 1);
    assert!(
        names.is_empty(),
        "give each of these types a name of its own: {names:#?}"
    );
}

#[test]
fn declared_types_are_found() {
    let code = "pub struct One<'a> {\npub(crate) enum Two {\ntrait Three: Four {}\ntype Five<T> = Six<T>;\nunion!();\n    struct Inside;\nstruct Seven;\nimpl One {";
    let found: Vec<&str> = declared(code).collect();
    assert_eq!(found, ["One", "Two", "Three", "Five", "Seven"]);
}

/// The files that the tables of a section name, each with the functions and types after it.
fn mapped(section: &str) -> Vec<(PathBuf, Vec<String>)> {
    let mut files: Vec<(PathBuf, Vec<String>)> = Vec::new();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    for name in cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        if name.contains('.') {
            // A bare name is next to the file before it.
            let folder = files.last().and_then(|(file, _)| file.parent());
            let is_bare = !name.contains('/');
            let folder = folder.filter(|_| is_bare).unwrap_or(Path::new(""));
            files.push((folder.join(name), Vec::new()));
        } else if let Some((_, names)) = files.last_mut() {
            names.push(name.to_owned());
        }
    }
    files
}

/// Fails if a file below `crates`, or a page below `docs`, is not there, or does not declare what is named after it.
fn assert_declared(files: Vec<(PathBuf, Vec<String>)>) {
    const KEYWORDS: [&str; 6] = ["fn", "struct", "enum", "trait", "const", "static"];
    for (file, names) in files {
        let is_page = file.starts_with("docs");
        let base = root().join(if is_page { "" } else { "crates" });
        let path = base.join(&file);
        assert!(path.is_file(), "{} is not there", file.display());
        let text = std::fs::read_to_string(path).expect("it can be read");
        for name in names {
            let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
            let is_there = KEYWORDS.iter().any(|keyword| {
                let declaration = format!("{keyword} {name}");
                let mut found = text.split(&declaration).skip(1);
                found.any(|rest| !rest.starts_with(is_part))
            });
            assert!(is_there, "`{name}` is not in {}", file.display());
        }
    }
}

/// The section of a page with this title.
fn section(page: &str, title: &str) -> String {
    let text = std::fs::read_to_string(root().join(page)).expect("the page is there");
    let section = text
        .split("\n## ")
        .find(|section| section.starts_with(title));
    section.expect("the section is there").to_owned()
}

#[test]
fn the_life_of_a_request_leads_to_code() {
    let files = mapped(&section("ARCHITECTURE.md", "The life"));
    assert!(files.len() > 20, "only {} files were found", files.len());
    assert_declared(files);
}

#[test]
fn the_lists_of_files_to_touch_lead_to_code() {
    let page = std::fs::read_to_string(root().join("docs/adding.md")).expect("the page is there");
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    assert_eq!(sections.len(), 10, "one for each kind of change");
    for section in sections {
        let files = mapped(section);
        let title = section.lines().next().unwrap_or_default();
        assert!(files.len() >= 3, "{title}: only {files:?} were found");
        assert_declared(files);
    }
}

#[test]
fn every_attack_that_is_defended_has_its_tests() {
    let section = section("SECURITY.md", "What is defended");
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<&str> = rows.skip(2).collect();
    assert!(rows.len() > 15, "only {} attacks were found", rows.len());
    for row in rows {
        let files = mapped(row);
        let tests = files.iter().map(|(_, tests)| tests.len());
        assert!(
            !files.is_empty() && tests.min() > Some(0),
            "no test in: {row}"
        );
        assert_declared(files);
    }
}
