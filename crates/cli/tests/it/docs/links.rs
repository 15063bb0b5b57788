//! Links lead somewhere, every page can be found from the index, and no guide is too long to read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{page, pages, root};

/// A guide that needs more is two guides.
const MOST_WORDS: usize = 2_500;

/// What the links of a page lead to, without those to other sites.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1);
    let targets = links.filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("http"))
}

#[test]
fn every_link_leads_somewhere() {
    for (name, text) in pages() {
        let here = root().join(&name);
        for target in targets(&text) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match path {
                "" => here.clone(),
                path => here.parent().unwrap().join(path),
            };
            assert!(file.exists(), "{name}: {target}");
            let is_there = anchor.is_empty() || anchors(&file).iter().any(|known| known == anchor);
            assert!(is_there, "{name}: {target}");
        }
    }
}

/// What the headings of a page are called in links.
fn anchors(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let fits = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        words.chars().filter(fits).collect::<String>()
    };
    headings
        .map(|line| anchor(line).replace(' ', "-"))
        .collect()
}

/// The pages that a page links to, by name.
fn linked(name: &str) -> BTreeSet<String> {
    let folder = Path::new(name).parent().unwrap();
    let text = page(name);
    let paths = targets(&text).map(|target| target.split('#').next().unwrap());
    let files = paths.filter(|path| Path::new(path).extension().is_some_and(|end| end == "md"));
    files.map(|path| plain(&folder.join(path))).collect()
}

/// A path without `..`.
fn plain(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain.display().to_string()
}

#[test]
fn every_page_is_reached_from_the_index() {
    let index = "docs/README.md".to_owned();
    let direct = linked(&index);
    let mut reached = BTreeSet::from([index.clone()]);
    let mut open = vec![index];
    while let Some(name) = open.pop() {
        let new = linked(&name).into_iter();
        open.extend(new.filter(|name| reached.insert(name.clone())));
    }
    for (name, _) in pages() {
        assert!(reached.contains(&name), "no link leads to {name}");
        // Only records of decisions are for a reader of the code, and are listed there.
        let is_listed = name.starts_with("docs/decisions/") || direct.contains(&name);
        let is_top = !name.starts_with("docs/") || name == "docs/README.md";
        assert!(is_listed || is_top, "docs/README.md does not list {name}");
    }
}

#[test]
fn no_guide_is_too_long() {
    let is_guide = |name: &String| name.starts_with("docs/guides/");
    let guides = pages().into_iter().filter(|(name, _)| is_guide(name));
    for (name, text) in guides {
        let words = text.split_whitespace().count();
        assert!(words <= MOST_WORDS, "{name} has {words} words");
    }
}

/// `docs/why.md` is written by hand, its figures are not.
#[test]
fn the_figures_to_decide_by_are_those_of_their_pages() {
    let text = page("docs/why.md");
    let mut found = 0;
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let from = linked_in(row);
        for figure in row.split("**").skip(1).step_by(2) {
            let is_there = from.iter().any(|source| page(source).contains(figure));
            assert!(is_there, "`{figure}` is not in {from:?}");
            found += 1;
        }
    }
    assert!(found >= 8, "only {found} were found");
}

/// The pages that a row of a table links to.
fn linked_in(row: &str) -> Vec<String> {
    let pages = targets(row).map(|target| target.split('#').next().unwrap());
    pages
        .map(|path| plain(&Path::new("docs").join(path)))
        .collect()
}
