//! Reads the rules of a file. Those of a folder are read by `folder.rs`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use tidegate::document::{Place, Problem, Problems, Source};
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{Clock as _, SystemClock};

use super::folder::RuleFolder;
use crate::config::RulePath;

/// How large a file of rules may be.
const MAX_BYTES: u64 = 64 << 20;

/// Why the rules of a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read the rules in `{}`: {source}; give the path of a YAML or JSON file, or of a folder of such files, with --rules", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The overlay cannot be read.
    #[error("cannot read the overlay in `{}`: {source}; give the path of a YAML file in `overlay`", path.display())]
    UnreadableOverlay {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// It is invalid: all problems, ready to be printed.
    #[error("{}", rendered.trim_end())]
    Wrong {
        /// The problems, with excerpts.
        rendered: String,
        /// Their positions, without any content of the file.
        brief: String,
    },
}

impl LoadError {
    /// The error for places that many can read: without content of the file, which may include customers' keys.
    pub fn brief(&self) -> String {
        match self {
            Self::Unreadable { .. } | Self::UnreadableOverlay { .. } => self.to_string(),
            Self::Wrong { brief, .. } => brief.clone(),
        }
    }
}

/// How many problems are named in brief.
const NAMED: usize = 5;

pub(super) fn brief(path: &Path, problems: &Problems) -> String {
    let one = |problem: &Problem| {
        let file = problem.source.as_deref();
        let place = match (problem.place.clone(), file) {
            (Place::Text { line, column, .. }, Some(file)) => format!("{file}:{line}:{column}"),
            (Place::Text { line, column, .. }, None) => format!("{line}:{column}"),
            (_, Some(file)) => file.to_owned(),
            (_, None) => "the file".to_owned(),
        };
        let rule = problem
            .rule
            .as_ref()
            .map(|rule| format!(" (rule `{rule}`)"));
        format!("{place}{}", rule.unwrap_or_default())
    };
    let places: Vec<String> = problems.errors().take(NAMED).map(one).collect();
    let more = problems.error_count().saturating_sub(places.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let path = path.display();
    format!(
        "`{path}` cannot be used, see {}{more}; `tidegate rules validate {path}` shows what is wrong",
        places.join(", ")
    )
}

pub(super) fn load(
    rules: &RulePath,
    settings: &RuleSettings,
) -> Result<(RuleSet, Problems), LoadError> {
    let path = &rules.path;
    let is_absent = rules.is_lenient && !path.exists();
    if is_absent || path.is_dir() {
        let folder = RuleFolder::read(rules)?;
        let read = folder.rules(&settings.at(SystemClock.now()));
        let read = read.map_err(|problems| LoadError::Wrong {
            rendered: folder.render(&problems),
            brief: brief(path, &problems),
        })?;
        let warnings = read.warnings().clone();
        return Ok((read, warnings));
    }
    let text = read(path).map_err(|source| LoadError::Unreadable {
        path: path.clone(),
        source,
    })?;
    let source = Source::new(path.display().to_string(), text);
    let rules = RuleSet::read(&source, &settings.at(SystemClock.now()));
    let rules = rules.map_err(|problems| LoadError::Wrong {
        rendered: problems.render(&source),
        brief: brief(path, &problems),
    })?;
    let warnings = rules.warnings().clone();
    Ok((rules, warnings))
}

pub(super) fn read(path: &Path) -> std::io::Result<String> {
    // Checked before opening: opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    let read = std::fs::File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        return Err(std::io::Error::other("it is larger than 64 MiB"));
    }
    Ok(text)
}
