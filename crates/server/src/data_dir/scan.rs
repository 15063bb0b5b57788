//! Reads the folder of versions when a data directory is opened.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::DataDirError;
use super::name::{self, Name};
use super::owner;
use super::version::{self, BadVersion, Row, RulesVersion};

/// A damaged version file. It is never removed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Warning {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub problem: BadVersion,
    /// Its new path, if it could be renamed.
    pub set_aside: Option<PathBuf>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, problem, .. } = self;
        write!(
            f,
            "`{}` is not a version of the rules: {problem}",
            path.display()
        )?;
        match &self.set_aside {
            Some(aside) => write!(f, "; it was set aside as `{}`", aside.display()),
            None => write!(f, "; it was left there"),
        }
    }
}

/// The versions in the folder.
#[derive(Debug, Default)]
pub(super) struct ScannedVersions {
    /// The newest version, if there is one.
    pub(super) current: Option<Arc<RulesVersion>>,
    /// All versions, newest first.
    pub(super) rows: Vec<Row>,
    /// The largest number ever given to a version, damaged ones included; zero if none was.
    pub(super) last: u64,
    /// The damaged files, newest first.
    pub(super) warnings: Vec<Warning>,
}

/// Reads every version, sets damaged files aside, and removes the leftovers of unfinished writes.
///
/// A file that cannot be read at all is an error and not a warning: older rules may be used only if the newer
/// ones are lost.
pub(super) fn scan(folder: &Path) -> Result<ScannedVersions, DataDirError> {
    let cannot_list = |error| DataDirError::new("list", folder, error);
    let mut found = ScannedVersions::default();
    let mut numbers = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(cannot_list)? {
        let name = entry.map_err(cannot_list)?.file_name();
        match name.to_str().and_then(Name::parse) {
            Some(Name::Version(number)) => {
                numbers.insert(number);
                found.last = found.last.max(number);
            }
            Some(Name::SetAside(number)) => found.last = found.last.max(number),
            // One that stays does no harm: it has a name that no other write takes.
            Some(Name::Temporary) => drop(fs::remove_file(folder.join(name))),
            None => {}
        }
    }
    for number in numbers.into_iter().rev() {
        match read(folder, number) {
            Ok(Some(version)) => {
                found.rows.push(Row::from(&version));
                found.current.get_or_insert_with(|| Arc::new(version));
            }
            Ok(None) => {}
            Err(DataDirError::Damaged { path, source }) => found.warnings.push(Warning {
                set_aside: set_aside(folder, number),
                path,
                problem: source,
            }),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Reads a version; nothing if there is no file for it.
pub(super) fn read(folder: &Path, number: u64) -> Result<Option<RulesVersion>, DataDirError> {
    let path = name::version(number, folder);
    let text = match read_file(&path) {
        Ok(Some(text)) => text,
        Ok(None) => {
            let source = BadVersion::NotAFile;
            return Err(DataDirError::Damaged { path, source });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DataDirError::new("read", &path, error)),
    };
    version::decode(number, &text)
        .map(Some)
        .map_err(|source| DataDirError::Damaged { path, source })
}

/// The content of a regular file; `None` for anything else, which could block a reader for ever.
fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let Some(mut file) = owner::open_own(path)? else {
        return Ok(None);
    };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Renames a damaged file and returns its new path; never replaces another file.
fn set_aside(folder: &Path, number: u64) -> Option<PathBuf> {
    let aside = name::set_aside(number, folder);
    if fs::symlink_metadata(&aside).is_ok() {
        return None;
    }
    fs::rename(name::version(number, folder), &aside).ok()?;
    Some(aside)
}
