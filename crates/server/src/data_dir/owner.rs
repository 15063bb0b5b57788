//! The owners of files in a data directory: only the user that the server runs as, and root.
//!
//! Another user could have prepared the directory: with rules and a token of their own choice, or with links to
//! files that the server may write and that user may not.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::error::DataDirError;

/// The bits of a mode that let the group and others write.
const WRITABLE: u32 = 0o022;

/// The bit of a directory in which a file is removed or renamed by its owner alone.
const STICKY: u32 = 0o1000;

/// The bit of a directory whose files get its group.
const SET_GROUP: u32 = 0o2000;

/// The user that this process acts as.
fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a file of this user may be used.
pub(super) fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == this_user()
}

/// Whether a command on this machine may use a file of this user. To root, the servers of all users are known.
pub(super) fn is_trusted_by_commands(owner: u32) -> bool {
    is_trusted(owner) || this_user() == 0
}

pub(super) fn is_own_group(group: u32) -> bool {
    let others = rustix::process::getgroups().unwrap_or_default();
    rustix::process::getegid().as_raw() == group
        || others.iter().any(|other| other.as_raw() == group)
}

/// Refuses a directory that another user has prepared, or may change: by the owner of itself, of the files in it
/// and of the versions of the rules.
pub(super) fn check(directory: &Path) -> Result<(), DataDirError> {
    let cannot_read = |error| DataDirError::new("read", directory, error);
    // The directory itself may be a link, if the link is not another user's.
    for found in [fs::symlink_metadata(directory), fs::metadata(directory)] {
        let found = found.map_err(cannot_read)?;
        let mode = found.mode() & 0o7777;
        if !is_trusted(found.uid()) {
            return Err(foreign(directory, directory, found.uid()));
        }
        let is_shared = found.is_dir() && mode & WRITABLE != 0 && mode & STICKY == 0;
        if is_shared && found.uid() == 0 && !is_own_group(found.gid()) {
            return Err(DataDirError::Shared {
                path: directory.to_path_buf(),
                mode,
                user: this_user(),
            });
        }
    }
    check_files(directory, directory)
}

fn check_files(folder: &Path, directory: &Path) -> Result<(), DataDirError> {
    let cannot_list = |error| DataDirError::new("read and write", folder, error);
    for entry in fs::read_dir(folder).map_err(cannot_list)? {
        let entry = entry.map_err(cannot_list)?;
        // Of a link, not of its target.
        let found = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(cannot_list)?,
        };
        if !is_trusted(found.uid()) {
            return Err(foreign(&entry.path(), directory, found.uid()));
        }
        // Another folder, such as `lost+found`, is neither used nor readable.
        if found.is_dir() && folder == directory && entry.file_name() == "rules" {
            check_files(&entry.path(), directory)?;
        }
    }
    Ok(())
}

fn foreign(path: &Path, directory: &Path, owner: u32) -> DataDirError {
    DataDirError::Foreign {
        path: path.to_path_buf(),
        directory: directory.to_path_buf(),
        owner,
        user: this_user(),
    }
}

/// Whether Kubernetes gave this directory to a group of this process (`fsGroup`). It gives every file in it to the
/// group too, with the right to write, each time that it mounts the volume.
pub(super) fn is_volume_of_own_group(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|found| {
        found.uid() == 0 && found.mode() & SET_GROUP != 0 && is_own_group(found.gid())
    })
}

/// Opens a file to read. Follows no link, which may lead to a file of another user, and does not wait for a pipe.
/// `None` if it is not a regular file.
pub(super) fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = match opened {
        // A link, or a socket.
        Err(error) if is_any_of(&error, &[Errno::LOOP, Errno::NXIO]) => return Ok(None),
        opened => opened?,
    };
    Ok(file.metadata()?.is_file().then_some(file))
}

fn is_any_of(error: &io::Error, numbers: &[Errno]) -> bool {
    let is = |number: &Errno| error.raw_os_error() == Some(number.raw_os_error());
    numbers.iter().any(is)
}

/// Opens a file to read, as [`open_regular`] does, if it is not another user's.
pub(super) fn open_own(path: &Path) -> io::Result<Option<File>> {
    let Some(file) = open_regular(path)? else {
        return Ok(None);
    };
    refuse_foreign(&file)?;
    Ok(Some(file))
}

/// Refuses an open file of another user.
pub(super) fn refuse_foreign(file: &File) -> io::Result<()> {
    let owner = file.metadata()?.uid();
    if is_trusted(owner) {
        return Ok(());
    }
    let user = this_user();
    Err(io::Error::other(format!(
        "it belongs to the user {owner}, and Tidegate runs as the user {user}"
    )))
}
