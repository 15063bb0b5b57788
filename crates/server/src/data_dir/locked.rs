//! The locked directory: one server at a time, and files that are replaced atomically.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use tidegate_identity::KeptFiles;

use super::error::DataDirError;
use super::lock::DirectoryLock;
use super::name::{TEMPORARY, temporary};
use super::owner;

/// How large a small file may be to be read.
const MAX_BYTES: u64 = 64 << 20;

/// A directory that this process has locked while this lives.
///
/// It and all that is in it belongs to the user of this process or to root; others' files are not read. Every file
/// is written atomically, with mode 0600: a killed process leaves the old file or the new one. Names
/// are plain file names that the caller chooses; `lock`, `rules` and names that end with `.tmp` or
/// `.corrupt` are reserved. Every call waits for the disk.
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
    /// Where it is.
    pub(crate) path: PathBuf,
    is_writable: bool,
    /// Released last. `None` for a read-only directory without a lock file.
    _lock: Option<DirectoryLock>,
}

impl LockedDir {
    /// Opens or creates the directory, and takes its lock.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        make(path)?;
        owner::check(path)?;
        let lock = DirectoryLock::take(path)?;
        let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::access(path, wanted)
            .map_err(|error| DataDirError::new("read and write", path, error.into()))?;
        remove_unfinished(path);
        Ok(Self::new(path, true, Some(lock)))
    }

    /// Opens a read-only directory. Takes its lock if there is one.
    pub fn open_to_read(path: &Path) -> Result<Self, DataDirError> {
        let wanted = Access::READ_OK | Access::EXEC_OK;
        rustix::fs::access(path, wanted)
            .map_err(|error| DataDirError::new("read", path, error.into()))?;
        owner::check(path)?;
        Ok(Self::new(path, false, DirectoryLock::take_to_read(path)?))
    }

    fn new(path: &Path, is_writable: bool, lock: Option<DirectoryLock>) -> Self {
        Self {
            path: path.to_path_buf(),
            is_writable,
            _lock: lock,
        }
    }

    /// Whether the directory was writable when it was opened.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// The content of a file; `None` if there is none.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DataDirError> {
        let path = self.path.join(name);
        match read(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DataDirError::new("read", &path, error)),
        }
    }

    /// Reads a small file with `decode`; `None` if there is none. Logs the consequence if it cannot be used. A damaged
    /// file, for which `decode` returns `None`, is set aside.
    pub(crate) fn load<T>(
        &self,
        name: &str,
        consequence: &str,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        match self.read(name) {
            Ok(Some(text)) => {
                let decoded = decode(&text);
                if decoded.is_none() {
                    self.set_aside(name, consequence, "it is damaged");
                }
                decoded
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!("{consequence}: {error}");
                None
            }
        }
    }

    /// Creates or replaces a file. When this returns, it is on the disk.
    pub fn write(&self, name: &str, text: &[u8]) -> Result<(), DataDirError> {
        self.write_with(name, |file| file.write_all(text))
    }

    /// Creates or replaces a file with the output of `fill`. When this returns, it is on the disk; if `fill` fails, the
    /// old file stays.
    pub fn write_with<T>(
        &self,
        name: &str,
        fill: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> Result<T, DataDirError> {
        let path = self.path.join(name);
        self.publish(&path, fill, |temporary| fs::rename(temporary, &path))
    }

    /// Opens a file of any size for reading; `None` if there is none. Follows no link, and opens only regular
    /// files.
    pub fn open_file(&self, name: &str) -> Result<Option<File>, DataDirError> {
        let path = self.path.join(name);
        match open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DataDirError::new("read", &path, error)),
        }
    }

    /// Renames an unusable file, over one that was set aside earlier, and logs the consequence.
    pub(crate) fn set_aside(&self, name: &str, consequence: &str, problem: impl fmt::Display) {
        let path = self.path.join(name);
        let aside = self.path.join(format!("{name}.corrupt"));
        let renamed = fs::rename(&path, &aside).and_then(|()| sync(&self.path));
        let then = match renamed {
            Ok(()) => format!("set aside as `{}`", aside.display()),
            Err(error) => format!("left there: {error}"),
        };
        let path = path.display();
        tracing::warn!("`{path}` cannot be used, so {consequence}: {problem}; the file was {then}");
    }

    /// Creates a file. Returns false, and changes nothing, if the name exists already.
    pub fn create(&self, name: &str, text: &[u8]) -> Result<bool, DataDirError> {
        let path = self.path.join(name);
        let fill = |file: &mut File| file.write_all(text);
        let mut is_new = true;
        self.publish(&path, fill, |temporary| {
            // Unlike a rename, a link never replaces a file.
            let linked = match fs::hard_link(temporary, &path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    // Some network and container file systems have no links.
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

    /// Writes a file under a temporary name, then renames it.
    fn publish<T>(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut File) -> io::Result<T>,
        name: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<T, DataDirError> {
        if !self.is_writable {
            return Err(DataDirError::read_only(path));
        }
        let cannot_write = |error| DataDirError::new("write", path, error);
        let (filled, temporary) = write_new(path, fill).map_err(cannot_write)?;
        name(&temporary).map_err(|error| {
            let _ = fs::remove_file(&temporary);
            cannot_write(error)
        })?;
        sync(&self.path).map_err(|error| DataDirError::new("sync", &self.path, error))?;
        Ok(filled)
    }
}

impl KeptFiles for LockedDir {
    fn load(&self, name: &str, consequence: &str, decode: &mut dyn FnMut(&[u8]) -> bool) {
        self.load(name, consequence, |text| decode(text).then_some(()));
    }

    fn write(
        &self,
        name: &str,
        text: &[u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.write(name, text)?)
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }
}

/// Opens a regular file that is not another user's.
fn open(path: &Path) -> io::Result<File> {
    owner::open_own(path)?.ok_or_else(|| io::Error::other("it is not a file"))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = open(path)?.take(MAX_BYTES + 1).read_to_end(&mut text);
    if read? as u64 > MAX_BYTES {
        return Err(io::Error::other("it is larger than 64 MiB"));
    }
    Ok(text)
}

/// Writes a file that is to become `path`, and waits until it is on the disk. Returns the result of `fill` and the
/// temporary path.
pub(super) fn write_new<T>(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    let temporary = temporary(path)?;
    match create(&temporary, fill) {
        Ok(filled) => Ok((filled, temporary)),
        Err(error) => {
            if error.kind() != io::ErrorKind::AlreadyExists {
                let _ = fs::remove_file(&temporary);
            }
            Err(error)
        }
    }
}

/// Creates a file, readable only by the user of this process, and waits until it is on the disk. Follows no link.
fn create<T>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = write(&mut file)?;
    file.sync_all()?;
    Ok(written)
}

/// Writes a new file under its own name. If that fails, the file is removed.
fn create_directly(path: &Path, text: &[u8]) -> io::Result<()> {
    create(path, |file| file.write_all(text)).inspect_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(path);
        }
    })
}

/// Removes unfinished files of killed servers.
fn remove_unfinished(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .ends_with(TEMPORARY.as_bytes())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Creates a directory and those above it, and waits until they are on the disk.
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
            // Another server may have created it; the lock decides.
            if !path.is_dir() {
                let path = path.to_path_buf();
                return Err(DataDirError::NotADirectory { path });
            }
        }
        Err(error) => return Err(DataDirError::new("create", path, error)),
    }
    match sync(parent) {
        // The parent may be writable and not readable.
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
