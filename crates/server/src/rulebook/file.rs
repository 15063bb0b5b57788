//! Reads the rules of a file.

use std::path::{Path, PathBuf};

use tidegate::document::{Problems, Source};
use tidegate::rules::{RuleSet, RuleSettings};

/// How large a file of rules may be.
const MAX_BYTES: u64 = 64 << 20;

/// Why the rules of a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read the rules in `{}`: {source}; give the path of a YAML or JSON file with --rules", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It does not say rules: everything that is wrong, ready to be printed.
    #[error("{}", rendered.trim_end())]
    Wrong {
        /// The problems, with excerpts.
        rendered: String,
    },
}

pub(super) fn load(path: &Path, settings: RuleSettings) -> Result<(RuleSet, Problems), LoadError> {
    let text = read(path).map_err(|source| LoadError::Unreadable {
        path: path.to_path_buf(),
        source,
    })?;
    let source = Source::new(path.display().to_string(), text);
    let (rules, problems) = RuleSet::read(&source, settings);
    match rules {
        Some(rules) => Ok((rules, problems)),
        None => Err(LoadError::Wrong {
            rendered: problems.render(&source),
        }),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let length = std::fs::metadata(path)?.len();
    if length > MAX_BYTES {
        return Err(std::io::Error::other("it is larger than 64 MiB"));
    }
    std::fs::read_to_string(path)
}
