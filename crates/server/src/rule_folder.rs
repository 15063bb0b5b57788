//! The files of a folder with rules, at any depth.
//!
//! Links are followed. Names that begin with `..` are never read: a mounted `ConfigMap` of Kubernetes has each of its files
//! there a second time. What is not a regular file is left out.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How deep folders may be nested, so that a link to a folder above itself is noticed.
const MAX_DEPTH: usize = 16;
/// How many files are read.
const MAX_FILES: usize = 10_000;

/// The files of a folder, in the order of their paths. Names that begin with `.` are left out if `ignores_dot_files`.
pub(crate) fn files_of(folder: &Path, ignores_dot_files: bool) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(folder, ignores_dot_files, 0, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(
    folder: &Path,
    ignores_dot_files: bool,
    depth: usize,
    files: &mut Vec<PathBuf>,
) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(io::Error::other(format!(
            "folders are nested deeper than {MAX_DEPTH} levels; a link may lead to a folder above it"
        )));
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(b"..") || (ignores_dot_files && name.starts_with(b".")) {
            continue;
        }
        let path = entry.path();
        // A link that leads nowhere, or a file that was removed since.
        let Ok(found) = fs::metadata(&path) else {
            continue;
        };
        if found.is_dir() {
            collect(&path, ignores_dot_files, depth + 1, files)?;
        } else if found.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(io::Error::other(format!(
                "there are more than {MAX_FILES} files"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn all_files_at_any_depth_are_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["..2026_1", "deeper/still", ".hidden"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in [
            "..2026_1/map",
            "b.yaml",
            "deeper/still/a",
            ".hidden/c",
            ".dot",
        ] {
            fs::write(at(name), "").unwrap();
        }
        symlink("..2026_1", at("..data")).unwrap();
        symlink("..data/map", at("map")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        let names = |ignores_dot_files| -> Vec<String> {
            let files = files_of(folder.path(), ignores_dot_files).unwrap();
            let name = |path: &PathBuf| {
                path.strip_prefix(folder.path())
                    .unwrap()
                    .display()
                    .to_string()
            };
            files.iter().map(name).collect()
        };
        assert_eq!(names(true), ["b.yaml", "deeper/still/a", "map"]);
        assert_eq!(
            names(false),
            [".dot", ".hidden/c", "b.yaml", "deeper/still/a", "map"]
        );

        symlink("..", at("deeper/up")).unwrap();
        let error = files_of(folder.path(), true).unwrap_err().to_string();
        assert!(error.contains("nested deeper"), "{error}");
        assert!(files_of(&at("nowhere"), true).is_err());
    }
}
