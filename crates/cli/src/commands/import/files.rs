//! The files that `include` names: below the folder of the configuration, and nowhere else.

use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use tidegate_import::{ImportFile, IncludedFiles};

use super::MAX_FILE;

/// How many files one `include` may name.
const MAX_MATCHES: usize = 1_000;

/// Files below the folder of the first one.
pub(super) struct FilesBelow;

impl IncludedFiles for FilesBelow {
    fn find(&self, root: &str, pattern: &str) -> Result<Vec<ImportFile>, String> {
        if root == "<stdin>" {
            return Err("what is read from stdin has no folder".to_owned());
        }
        let folder = Path::new(root).parent().unwrap_or(Path::new(""));
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let whole = fs::canonicalize(folder).map_err(|error| error.to_string())?;
        // An absolute name is looked for where it would be below the folder.
        let wanted = Path::new(pattern);
        let below = if wanted.is_absolute() {
            let relative = wanted.strip_prefix(&whole);
            relative.map_err(|_| outside(folder))?
        } else {
            wanted
        };
        let mut found = vec![folder.to_path_buf()];
        for component in below.components() {
            found = match component {
                Component::Normal(name) => step(&found, &name.to_string_lossy()),
                Component::CurDir => found,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(outside(folder));
                }
            };
            found.truncate(MAX_MATCHES);
        }
        let is_pattern = pattern.contains(['*', '?', '[']);
        if found.is_empty() && !is_pattern {
            return Err("there is no such file".to_owned());
        }
        found.retain(|path| !is_pattern || path.is_file());
        let read = |path: &PathBuf| read(path, &whole, folder);
        found.iter().map(read).collect()
    }
}

fn outside(folder: &Path) -> String {
    format!(
        "it is not below `{}`, the folder of the file that is read",
        folder.display()
    )
}

/// What is in these folders under a name, which may be a pattern.
fn step(folders: &[PathBuf], name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        if !name.contains(['*', '?', '[']) {
            let path = folder.join(name);
            if path.exists() {
                found.push(path);
            }
            continue;
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.take(MAX_MATCHES * 10) {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            // A pattern does not match hidden files.
            let is_hidden = file.starts_with('.') && !name.starts_with('.');
            if !is_hidden && matches(name, &file) {
                found.push(folder.join(&*file));
            }
        }
    }
    found.sort();
    found
}

/// Whether a name matches a pattern with `*`, `?` and `[…]`.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut of) = (0, 0);
    // Where the last star stands, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    while of < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at, of));
                at += 1;
                continue;
            }
            Some(_) => one(&pattern[at..], name[of]),
            None => None,
        };
        match (step, star) {
            (Some(length), _) => {
                at += length;
                of += 1;
            }
            (None, Some((stands, taken))) => {
                star = Some((stands, taken + 1));
                at = stands + 1;
                of = taken + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// How much of a pattern, which does not begin with a star, takes this character.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', rest @ ..] if rest.contains(&']') => {
            let end = rest.iter().skip(1).position(|c| *c == ']')? + 1;
            let set = rest.get(..end)?;
            let (is_negated, set) = match set {
                ['!' | '^', set @ ..] => (true, set),
                set => (false, set),
            };
            let mut is_in = set.contains(&c);
            for range in set.windows(3) {
                if let [low, '-', high] = range {
                    is_in |= (*low..=*high).contains(&c);
                }
            }
            (is_in != is_negated).then_some(end + 2)
        }
        [first, ..] => (*first == c).then_some(1),
        [] => None,
    }
}

/// Reads a file that is below the folder, also when links are followed.
fn read(path: &Path, whole: &Path, folder: &Path) -> Result<ImportFile, String> {
    let real = fs::canonicalize(path).map_err(|error| error.to_string())?;
    if !real.starts_with(whole) {
        return Err(outside(folder));
    }
    if !real.is_file() {
        return Err(format!("`{}` is not a file", path.display()));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(&real).map_err(|error| error.to_string())?;
    let taken = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
    taken.map_err(|error| error.to_string())?;
    let name = path.strip_prefix("./").unwrap_or(path);
    Ok(ImportFile {
        name: name.display().to_string(),
        text: String::from_utf8_lossy(&bytes).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("*.conf",     "a.conf",   true),
            ("*.conf",     "a.conf~",  false),
            ("*",          "",         true),
            ("a*b*c",      "aXbYbZc",  true),
            ("a*b*c",      "aXbYbZ",   false),
            ("?.conf",     "a.conf",   true),
            ("?.conf",     "ab.conf",  false),
            ("[a-c]x",     "bx",       true),
            ("[!a-c]x",    "bx",       false),
            ("[a-c]x",     "dx",       false),
            ("[]x",        "[]x",      false),
            ("[",          "[",        true),
            ("**",         "abc",      true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn nothing_outside_of_the_folder_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("nginx");
        fs::create_dir_all(below.join("conf.d")).unwrap();
        fs::write(folder.path().join("secret.conf"), "secret").unwrap();
        fs::write(below.join("conf.d/b.conf"), "b").unwrap();
        fs::write(below.join("conf.d/a.conf"), "a").unwrap();
        fs::write(below.join("conf.d/.hidden.conf"), "hidden").unwrap();
        std::os::unix::fs::symlink("../secret.conf", below.join("link.conf")).unwrap();
        let root = below.join("nginx.conf").display().to_string();
        let find = |pattern: &str| {
            let files = FilesBelow.find(&root, pattern)?;
            Ok::<_, String>(files.into_iter().map(|file| file.text).collect::<Vec<_>>())
        };
        assert_eq!(find("conf.d/*.conf").unwrap(), ["a", "b"]);
        assert_eq!(find("./conf.d/b.conf").unwrap(), ["b"]);
        let absolute = below.canonicalize().unwrap().join("*/b.conf");
        assert_eq!(find(&absolute.display().to_string()).unwrap(), ["b"]);
        assert!(find("conf.d/*.none").unwrap().is_empty());
        for refused in [
            "../secret.conf",
            "link.conf",
            "link.con*",
            "/etc/hostname",
            "none",
            "conf.d",
        ] {
            assert!(find(refused).is_err(), "{refused}");
        }
    }
}
