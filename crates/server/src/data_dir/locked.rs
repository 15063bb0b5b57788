//! The directory itself, whatever is kept in it: one server at a time, and small files that are
//! replaced whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::Access;

use super::error::DataDirError;
use super::lock::Lock;

/// How large a small file may be to be read.
const MAX_BYTES: u64 = 64 << 20;

/// A directory that this process has locked, while this lives, and in which it keeps small files.
///
/// Every file is written whole or not at all, with mode 0600: a process that is killed leaves the file
/// that was there before, or the new one. Names are plain file names that the caller chooses; `lock`,
/// `rules` and what ends with `.tmp` are taken. Every call waits for the disk.
///
/// ```
/// use tidegate_server::data_dir::LockedDir;
///
/// # let temporary = tempfile::tempdir()?;
/// let directory = LockedDir::open(temporary.path())?;
/// assert_eq!(directory.read("instances")?, None);
/// directory.write("instances", b"3\n")?;
/// assert_eq!(directory.read("instances")?.as_deref(), Some(&b"3\n"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LockedDir {
    path: PathBuf,
    is_writable: bool,
    /// Held while a file is written: temporary files have one name each.
    writing: Mutex<()>,
    /// Released last. None for a directory without a lock file in which none can be made.
    _lock: Option<Lock>,
}

impl LockedDir {
    /// Opens the directory, or makes it, and takes its lock.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        make(path)?;
        let lock = Lock::take(path)?;
        let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::access(path, wanted)
            .map_err(|error| DataDirError::new("read and write", path, error.into()))?;
        Ok(Self::new(path, true, Some(lock)))
    }

    /// Opens a directory in which nothing can be written any more. Its lock is taken if there is one.
    pub fn open_to_read(path: &Path) -> Result<Self, DataDirError> {
        let wanted = Access::READ_OK | Access::EXEC_OK;
        rustix::fs::access(path, wanted)
            .map_err(|error| DataDirError::new("read", path, error.into()))?;
        Ok(Self::new(path, false, Lock::take_to_read(path)?))
    }

    fn new(path: &Path, is_writable: bool, lock: Option<Lock>) -> Self {
        Self {
            path: path.to_path_buf(),
            is_writable,
            writing: Mutex::new(()),
            _lock: lock,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether files can be written, as far as it was known when the directory was opened.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// What is in a file; nothing if there is none.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DataDirError> {
        let path = self.path.join(name);
        match read(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DataDirError::new("read", &path, error)),
        }
    }

    /// Replaces a file, or makes it. When this returns, it is on the disk.
    pub fn write(&self, name: &str, text: &[u8]) -> Result<(), DataDirError> {
        let path = self.path.join(name);
        self.publish(&path, text, |temporary| fs::rename(temporary, &path))
    }

    /// Makes a file that is not there yet. False if there is one already, or anything else of that
    /// name, which is then left as it is.
    pub fn create(&self, name: &str, text: &[u8]) -> Result<bool, DataDirError> {
        let path = self.path.join(name);
        let mut is_new = true;
        self.publish(&path, text, |temporary| {
            // Unlike a rename, a link never replaces what is there.
            let linked = match fs::hard_link(temporary, &path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    // Some file systems of networks and containers have no links.
                    create_directly(&path, text)
                }
                linked => linked,
            };
            match linked {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => is_new = false,
                linked => linked?,
            }
            fs::remove_file(temporary)
        })?;
        Ok(is_new)
    }

    /// Removes a file, if there is one.
    pub fn remove(&self, name: &str) -> Result<(), DataDirError> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DataDirError::new("remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file under a temporary name, and then gives it its own.
    fn publish(
        &self,
        path: &Path,
        text: &[u8],
        name: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), DataDirError> {
        if !self.is_writable {
            return Err(DataDirError::read_only(path));
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = Path::new(&temporary);
        let _writing = self.writing.lock();
        // One that a killed server left may have another mode.
        let _ = fs::remove_file(temporary);
        let written = write_new(temporary, text).and_then(|()| name(temporary));
        written.map_err(|error| {
            let _ = fs::remove_file(temporary);
            DataDirError::new("write", path, error)
        })?;
        sync(&self.path).map_err(|error| DataDirError::new("sync", &self.path, error))
    }
}

/// Reads a file. Anything else could keep a reader waiting for ever.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = Vec::new();
    let read = File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut text);
    if read? as u64 > MAX_BYTES {
        return Err(io::Error::other("it is larger than 64 MiB"));
    }
    Ok(text)
}

/// Writes a file that is not there yet, only for the user of this process, and waits until it is on the
/// disk.
fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// Writes a file that is not there yet under its own name. If that fails half way, it is gone again.
fn create_directly(path: &Path, text: &[u8]) -> io::Result<()> {
    write_new(path, text).inspect_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(path);
        }
    })
}

/// Makes a directory, and those above it, and sees to it that they are on the disk.
pub(super) fn make(path: &Path) -> Result<(), DataDirError> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    make(parent)?;
    match DirBuilder::new().mode(0o750).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Another server may have been quicker; the lock will tell.
            if !path.is_dir() {
                let path = path.to_path_buf();
                return Err(DataDirError::NotADirectory { path });
            }
        }
        Err(error) => return Err(DataDirError::new("create", path, error)),
    }
    match sync(parent) {
        // To make an entry takes no right to open the directory that it is made in.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
            Err(DataDirError::new("sync", parent, error))
        }
        _ => Ok(()),
    }
}

/// Waits until the names in a directory are on the disk.
pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_created_without_links_too_and_never_over_another() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("token");
        create_directly(&path, b"first").unwrap();
        let again = create_directly(&path, b"second").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
    }
}
