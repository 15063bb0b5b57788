//! The lock of a data directory: at most one server at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use super::error::DataDirError;
use super::owner;

/// How often the lock is tried before it counts as taken, and how long in between.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(20);

/// Held while it lives. The system releases it too, however the process ends.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    /// Takes the lock of the directory, or reports the process that has it.
    pub(super) fn take(directory: &Path) -> Result<Self, DataDirError> {
        let path = directory.join("lock");
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags.bits().cast_signed())
            .open(&path)
            .and_then(only_own)
            .map_err(|error| DataDirError::new("open", &path, error))?;
        acquire(&file, directory)?;
        sign(&mut file);
        Ok(Self { file })
    }

    /// Takes the lock of a read-only directory, or reports the process that has it. Returns `None` if there is no
    /// file to lock: then no server writes there either.
    pub(super) fn take_to_read(directory: &Path) -> Result<Option<Self>, DataDirError> {
        let path = directory.join("lock");
        let file = match owner::open_own(&path) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(DataDirError::new("open", &path, not_a_file())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(DataDirError::new("open", &path, error)),
        };
        acquire(&file, directory)?;
        Ok(Some(Self { file }))
    }
}

/// The file, if it is a regular one and not another user's.
fn only_own(file: File) -> io::Result<File> {
    if !file.metadata()?.is_file() {
        return Err(not_a_file());
    }
    owner::refuse_foreign(&file)?;
    Ok(file)
}

fn not_a_file() -> io::Error {
    io::Error::other("it is not a file")
}

fn acquire(file: &File, directory: &Path) -> Result<(), DataDirError> {
    for attempt in 1.. {
        match file.try_lock() {
            Ok(()) => break,
            // A command that checks for a running server holds the lock for some microseconds.
            Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(DataDirError::InUse {
                    path: directory.to_path_buf(),
                    process: signer(file),
                });
            }
            Err(TryLockError::Error(error)) => {
                let path = directory.join("lock");
                return Err(DataDirError::new("lock", &path, error));
            }
        }
    }
    Ok(())
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing the file is not enough while a child process is being started: until it runs its
        // program, it has the file open too.
        let _ = self.file.unlock();
    }
}

/// Writes the process id into the lock file. Only for a message: a full disk must not keep a server from
/// starting. A file that has other names may be more than a lock, and stays as it is.
fn sign(file: &mut File) {
    if !file.metadata().is_ok_and(|found| found.nlink() == 1) {
        return;
    }
    let _ = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
}

fn signer(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
