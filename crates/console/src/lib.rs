//! The files of the console: `page/` and `vendor/`, embedded at build time and found by their path below
//! `/console/`. How they are served, and with which headers, is up to the server.

#![forbid(unsafe_code)]

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// A file of the console.
#[derive(Debug)]
pub struct ConsoleFile {
    /// Its path below `/console/`; that of the page itself is empty.
    pub path: &'static str,
    /// The content.
    pub bytes: &'static [u8],
    /// The value of `Content-Type`.
    pub media_type: &'static str,
    /// A strong entity tag, in quotes.
    pub etag: String,
}

/// The paths of files below a folder, with their content.
macro_rules! embedded {
    ($folder:literal, $prefix:literal: $($path:literal),* $(,)?) => {
        &[$((concat!($prefix, $path), include_bytes!(concat!($folder, $path)))),*]
    };
}

/// Every file with its content, the page first. A test compares the table with the folders.
static EMBEDDED: [&[(&str, &[u8])]; 2] = [
    embedded!("../page/", "":
        "index.html",
        "activity-state.js",
        "activity.js",
        "api.js",
        "app.js",
        "attributes.js",
        "buttons.js",
        "candidate.js",
        "chart.js",
        "client-chart.js",
        "client-list.js",
        "css/colors.css",
        "css/layout.css",
        "css/parts.css",
        "demand.js",
        "denied.js",
        "descriptor.js",
        "dialog.js",
        "diff.js",
        "dom.js",
        "editor.js",
        "evidence.js",
        "explained.js",
        "format.js",
        "health.js",
        "icon.svg",
        "kept.js",
        "keys.js",
        "last-decision.js",
        "limit-text.js",
        "marks.js",
        "messages.js",
        "override-dialog.js",
        "overrides.js",
        "pages/changes.js",
        "pages/client.js",
        "pages/overrides.js",
        "pages/overview.js",
        "pages/rule-add.js",
        "pages/rule-edit.js",
        "pages/rule.js",
        "pages/rules.js",
        "pages/sign-in.js",
        "promoted.js",
        "reasons.js",
        "router.js",
        "rule-table.js",
        "rules.js",
        "search.js",
        "series.js",
        "session.js",
        "source.js",
        "sparkline.js",
        "table.js",
        "unit.js",
        "yaml.js",
    ),
    embedded!("../vendor/", "vendor/":
        "uplot/uPlot.esm.js",
        "uplot/uPlot.min.css",
    ),
];

static FILES: LazyLock<Vec<ConsoleFile>> = LazyLock::new(|| {
    let all = EMBEDDED.iter().flat_map(|files| files.iter());
    all.map(|(path, bytes)| ConsoleFile {
        path: if *path == "index.html" { "" } else { path },
        bytes,
        media_type: media_type(path),
        etag: etag(bytes),
    })
    .collect()
});

/// The file at a path below `/console/`.
pub fn find(path: &str) -> Option<&'static ConsoleFile> {
    FILES.iter().find(|file| file.path == path)
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

fn etag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let digits = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
    format!("\"{}\"", digits.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Paths of the files below a folder, but for licences.
    fn below(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = format!("{prefix}{name}");
            if entry.path().is_dir() {
                below(&entry.path(), &format!("{path}/"), found);
            } else if name != "LICENSE" {
                found.insert(path);
            }
        }
    }

    fn own_files() -> impl Iterator<Item = (&'static str, &'static str)> {
        let files = EMBEDDED[0].iter();
        files.map(|(path, bytes)| (*path, std::str::from_utf8(bytes).unwrap()))
    }

    #[test]
    fn every_file_of_the_folders_is_embedded() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut there = BTreeSet::new();
        below(&root.join("page"), "", &mut there);
        below(&root.join("vendor"), "vendor/", &mut there);
        let all = EMBEDDED.iter().flat_map(|files| files.iter());
        let embedded: BTreeSet<String> = all.map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(there, embedded);
    }

    #[test]
    fn a_file_has_a_type_and_a_tag_of_its_content() {
        let page = find("").unwrap();
        assert_eq!(page.media_type, "text/html; charset=utf-8");
        assert!(page.bytes.starts_with(b"<!doctype html>"));
        assert!(page.etag.len() == 34 && page.etag.starts_with('"'));
        assert_ne!(page.etag, find("app.js").unwrap().etag);
        for file in FILES.iter() {
            assert_ne!(file.media_type, "application/octet-stream", "{file:?}");
        }
        for path in ["index.html", "/", "app.js/", "../Cargo.toml", "LICENSE"] {
            assert!(find(path).is_none(), "{path}");
        }
    }

    /// The content security policy forbids these. In this test a mistake is found without a browser.
    #[test]
    fn no_file_has_inline_code_or_sets_markup_or_names_another_site() {
        const FORBIDDEN: [&str; 10] = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            " style=\"",
            " onclick=",
            "https://",
            "localStorage",
        ];
        for (path, text) in own_files() {
            // One module decides what a tab keeps.
            let may_keep = path == "kept.js";
            assert!(may_keep || !text.contains("sessionStorage"), "{path}");
            for word in FORBIDDEN {
                assert!(!text.contains(word), "{path} has {word}");
            }
            // The one URL is the name of a kind of element.
            let urls = text.matches("http://").count();
            let names = text.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(urls, names, "{path} names another site");
            assert!(
                !text.contains("<script>") && !text.contains("<style"),
                "{path}"
            );
        }
    }

    /// Relative paths, so that the console also works below a prefix of a proxy.
    #[test]
    fn every_import_leads_to_a_file() {
        for (path, text) in
            own_files().filter(|(path, _)| media_type(path).starts_with("text/javascript"))
        {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            for line in text
                .lines()
                .filter(|line| line.ends_with("';") && line.contains(" from '"))
            {
                let target = line.split('\'').nth(1).unwrap();
                let mut parts: Vec<&str> =
                    folder.split('/').filter(|part| !part.is_empty()).collect();
                for part in target.split('/') {
                    match part {
                        "." => {}
                        ".." => drop(parts.pop()),
                        part => parts.push(part),
                    }
                }
                assert!(find(&parts.join("/")).is_some(), "{path}: {line}");
            }
        }
    }
}
