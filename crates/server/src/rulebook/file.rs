//! Reads the rules of a file. Those of a folder are read by `folder.rs`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use tidegate::document::{Place, Problem, Problems, Source};
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{Clock as _, SystemClock};

use super::folder::RuleFolder;
use super::last_good::{KeptFile, LastGood, node_of_files};
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
        /// What is logged of them.
        logged: String,
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

    /// The error for the log.
    pub(crate) fn logged(&self) -> String {
        match self {
            Self::Wrong { logged, .. } => logged.clone(),
            error => error.brief(),
        }
    }
}

/// How many problems are named in brief.
const NAMED: usize = 5;

/// Where the problems are, and of which rules.
pub(super) fn brief(path: &Path, problems: &Problems) -> String {
    let one = |problem: &Problem| {
        let rule = problem.rule.as_ref();
        let rule = rule.map(|rule| format!(" (rule `{rule}`)"));
        format!("{}{}", place(problem), rule.unwrap_or_default())
    };
    format!(
        "`{0}` cannot be used, see {1}; `tidegate rules validate {0}` shows what is wrong",
        path.display(),
        listed(problems, ", ", one)
    )
}

/// Where the problems are, and what they are.
fn in_full(path: &Path, problems: &Problems) -> String {
    let one = |problem: &Problem| format!("{}: {problem}", place(problem));
    let path = path.display();
    format!("`{path}` cannot be used: {}", listed(problems, "; ", one))
}

fn listed(problems: &Problems, separator: &str, one: impl Fn(&Problem) -> String) -> String {
    let named: Vec<String> = problems.errors().take(NAMED).map(one).collect();
    let more = match problems.error_count().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(separator))
}

fn place(problem: &Problem) -> String {
    let file = problem.source.as_deref();
    match (problem.place.clone(), file) {
        (Place::Text { line, column, .. }, Some(file)) => format!("{file}:{line}:{column}"),
        (Place::Text { line, column, .. }, None) => format!("{line}:{column}"),
        (_, Some(file)) => file.to_owned(),
        (_, None) => "the file".to_owned(),
    }
}

/// The texts of a file, or of all files of a folder.
pub(super) enum RuleTexts {
    File(Source),
    Folder(RuleFolder),
}

impl RuleTexts {
    pub(super) fn read(rules: &RulePath) -> Result<Self, LoadError> {
        let path = &rules.path;
        let is_absent = rules.is_lenient && !path.exists();
        if is_absent || path.is_dir() {
            return Ok(Self::Folder(RuleFolder::read(rules)?));
        }
        let text = read(path).map_err(|source| LoadError::Unreadable {
            path: path.clone(),
            source,
        })?;
        Ok(Self::File(Source::new(path.display().to_string(), text)))
    }

    /// Those of an earlier run.
    pub(super) fn of_last_good(rules: &RulePath, kept: &LastGood) -> Self {
        let source = |file: &KeptFile| Source::new(file.path.clone(), file.text.clone());
        match &kept.files[..] {
            [file] if file.path == rules.path.display().to_string() => Self::File(source(file)),
            files => Self::Folder(RuleFolder(files.iter().map(source).collect())),
        }
    }

    pub(super) fn rules(
        &self,
        path: &RulePath,
        settings: &RuleSettings,
    ) -> Result<RuleSet, LoadError> {
        let settings = settings.at(SystemClock.now());
        let read = match self {
            Self::File(source) => RuleSet::read(source, &settings),
            Self::Folder(folder) => folder.rules(&settings),
        };
        read.map_err(|problems| {
            let brief = brief(&path.path, &problems);
            LoadError::Wrong {
                rendered: match self {
                    Self::File(source) => problems.render(source),
                    Self::Folder(folder) => folder.render(&problems),
                },
                // In place of another server, only the log says what is wrong.
                logged: if path.is_lenient {
                    in_full(&path.path, &problems)
                } else {
                    brief.clone()
                },
                brief,
            }
        })
    }

    /// They, to be kept.
    pub(super) fn last_good(&self, path: &Path) -> LastGood {
        let file = |source: &Source| KeptFile {
            path: source.name.clone(),
            text: source.text.clone(),
        };
        LastGood {
            node: node_of_files(path),
            version: String::new(),
            received: SystemClock.now().as_micros(),
            domains: Vec::new(),
            files: match self {
                Self::File(source) => vec![file(source)],
                Self::Folder(RuleFolder(sources)) => sources.iter().map(file).collect(),
            },
        }
    }
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
