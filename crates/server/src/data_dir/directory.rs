//! The versions of the rules in the data directory: opened, read and written by one server at a time.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustix::fs::Access;

use super::error::DataDirError;
use super::locked::{LockedDir, make, sync, write_new};
use super::name::{self, LAST_NUMBER};
use super::scan::{self, ScannedVersions, Warning};
use super::version::{self, NewVersion, Row, RulesVersion};

/// How many versions are kept by default.
const DEFAULT_KEEP: usize = 100;

/// A directory with the versions of the rules, locked for this process while this lives.
///
/// Each version is a file of its own, complete and on the disk before it gets its name, so a killed process
/// leaves the version that it acknowledged last, or one that it was about to acknowledge. Opening, reading
/// and writing wait for the disk; [`current`](Self::current) and [`history`](Self::history) do not.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::Timestamp;
/// use tidegate_server::data_dir::{DataDir, NewVersion};
///
/// # let temporary = tempfile::tempdir()?;
/// # let path = temporary.path();
/// let data = DataDir::open(path)?;
/// assert!(data.current().is_none());
/// let version = data.write(&NewVersion {
///     at: Timestamp::from_seconds(1_794_770_000),
///     by: "ops".into(),
///     changes: vec!["added per-user".into()],
///     rules: Arc::new(serde_json::json!([{"id": "per-user", "per": ["user_id"], "limit": "5/s"}])),
///     shared: None,
/// })?;
/// assert_eq!(version.version, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DataDir {
    /// The folder of the versions.
    folder: PathBuf,
    is_writable: bool,
    keep: usize,
    warnings: Vec<Warning>,
    /// The largest number given to a version. Held during a write.
    last: Mutex<u64>,
    shown: RwLock<Shown>,
    /// Released last.
    _directory: Arc<LockedDir>,
}

/// The state that readers see. Never locked while waiting for the disk.
#[derive(Debug)]
struct Shown {
    current: Option<Arc<RulesVersion>>,
    rows: Vec<Row>,
}

impl DataDir {
    /// Opens or creates the directory, and takes its lock.
    ///
    /// A damaged file is set aside and [reported](Self::warnings); the newest good version is the current one.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        Self::within(Arc::new(LockedDir::open(path)?))
    }

    /// The versions in a locked directory. In a read-only directory the versions can be read,
    /// [`write`](Self::write) is an error, and nothing is repaired.
    pub fn within(directory: Arc<LockedDir>) -> Result<Self, DataDirError> {
        let folder = directory.path.join("rules");
        if directory.is_writable() {
            make(&folder)?;
        }
        // A link may lead to a folder of another user.
        if fs::symlink_metadata(&folder).is_ok_and(|found| !found.is_dir()) {
            return Err(DataDirError::NotADirectory { path: folder });
        }
        let wanted = Access::READ_OK | Access::EXEC_OK;
        rustix::fs::access(&folder, wanted)
            .map_err(|error| DataDirError::new("read and write", &folder, error.into()))?;
        let is_writable =
            directory.is_writable() && rustix::fs::access(&folder, Access::WRITE_OK).is_ok();
        let ScannedVersions {
            current,
            rows,
            last,
            warnings,
        } = scan::scan(&folder)?;
        if is_writable {
            // A version whose writer was killed before this step becomes durable now.
            sync(&folder).map_err(|error| DataDirError::new("sync", &folder, error))?;
        }
        Ok(Self {
            folder,
            is_writable,
            keep: DEFAULT_KEEP,
            warnings,
            last: Mutex::new(last),
            shown: RwLock::new(Shown { current, rows }),
            _directory: directory,
        })
    }

    /// Sets how many versions are kept, including the current one: 100 by default, at least one.
    #[must_use]
    pub fn keep(self, keep: usize) -> Self {
        Self {
            keep: keep.max(1),
            ..self
        }
    }

    /// The damaged files that were found when the directory was opened. If there are some and no
    /// [current](Self::current) version, all rules are lost.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Whether the directory was writable when it was opened.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// The newest version; `None` if none was ever written.
    pub fn current(&self) -> Option<Arc<RulesVersion>> {
        self.shown.read().current.clone()
    }

    /// The versions that are kept, newest first.
    pub fn history(&self) -> Vec<Row> {
        self.shown.read().rows.clone()
    }

    /// Reads a version of the [history](Self::history) from the disk; `None` if it is not kept.
    pub fn read(&self, version: u64) -> Result<Option<RulesVersion>, DataDirError> {
        let is_kept = |shown: &Shown| shown.rows.iter().any(|row| row.version == version);
        if is_kept(&self.shown.read()) {
            scan::read(&self.folder, version)
        } else {
            Ok(None)
        }
    }

    /// Makes a new version the current one, and removes the oldest if there are too many.
    ///
    /// When this returns a version, it is on the disk. The returned version was parsed from the written text, so a
    /// restart finds the same. After an error the current version is the previous one, here and on the disk, with one
    /// exception: if the disk fails after the new file has got its name, and then fails to remove it, the next start
    /// may find the new version.
    pub fn write(&self, new: &NewVersion) -> Result<Arc<RulesVersion>, DataDirError> {
        self.write_with(new, File::write_all)
    }

    /// As [`write`](Self::write); `fill` writes the text.
    pub(super) fn write_with(
        &self,
        new: &NewVersion,
        fill: impl FnOnce(&mut File, &[u8]) -> io::Result<()>,
    ) -> Result<Arc<RulesVersion>, DataDirError> {
        if !self.is_writable {
            return Err(DataDirError::read_only(&self.folder));
        }
        let mut last = self.last.lock();
        let number = *last + 1;
        if number > LAST_NUMBER {
            let path = self.folder.clone();
            return Err(DataDirError::NoNumberLeft { path });
        }
        let text = version::encode(number, new).map_err(DataDirError::Unwritable)?;
        let version = version::decode(number, &text).map_err(DataDirError::Unwritable)?;
        let version = Arc::new(version);

        let path = name::version(number, &self.folder);
        let temporary = write_new(&path, |file| fill(file, &text));
        let ((), temporary) =
            temporary.map_err(|error| DataDirError::new("write", &path, error))?;
        // Even if this fails, the number may now be used on the disk.
        *last = number;
        self.publish(&temporary, &path)?;

        let mut shown = self.shown.write();
        shown.rows.insert(0, Row::from(&*version));
        shown.current = Some(Arc::clone(&version));
        drop(shown);
        self.prune();
        Ok(version)
    }

    /// Gives a complete file the name of a version; if that fails, the file is removed.
    fn publish(&self, temporary: &Path, path: &Path) -> Result<(), DataDirError> {
        if let Err(error) = fs::rename(temporary, path) {
            let _ = fs::remove_file(temporary);
            return Err(DataDirError::new("write", path, error));
        }
        sync(&self.folder).map_err(|error| {
            let _ = fs::remove_file(path).and_then(|()| sync(&self.folder));
            DataDirError::new("sync", &self.folder, error)
        })
    }

    /// Removes versions beyond the history. A file that cannot be removed stays in it.
    fn prune(&self) {
        let history = self.history();
        let old = history.iter().skip(self.keep).map(|row| row.version);
        let is_gone = |number: &u64| {
            let path = name::version(*number, &self.folder);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "cannot remove an old version");
                    false
                }
                _ => true,
            }
        };
        let gone: Vec<u64> = old.filter(is_gone).collect();
        let mut shown = self.shown.write();
        shown.rows.retain(|row| !gone.contains(&row.version));
    }
}
