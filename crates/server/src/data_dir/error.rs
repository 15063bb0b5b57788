//! Errors of a data directory, by the remedy for the operator.

use std::io;
use std::path::{Path, PathBuf};

use tidegate::printable::escaped;

use super::version::BadVersion;

/// Why a data directory could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// Another server holds the lock of the directory.
    #[error(
        "`{}` is in use by another Tidegate server{}; stop it or give this one another --data-dir",
        path.display(),
        in_parentheses(*process)
    )]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The process id of the other server, if it could be read.
        process: Option<u32>,
    },
    /// The path, or one above it, is not a directory.
    #[error(
        "`{}` is not a directory; move it away or give another --data-dir",
        path.display()
    )]
    NotADirectory {
        /// The path that is not a directory.
        path: PathBuf,
    },
    /// The directory, or a file in it, belongs to another user, who may have prepared it.
    #[error(
        "`{}` belongs to the user {owner}, and Tidegate runs as the user {user}: another user may have prepared it, \
         so nothing in it is used; if you trust what is in it, run `chown -R {user} {}`, or give another --data-dir",
        escaped(&path.to_string_lossy()),
        directory.display()
    )]
    Foreign {
        /// The path that belongs to another user.
        path: PathBuf,
        /// The data directory.
        directory: PathBuf,
        /// The number of that user.
        owner: u32,
        /// The number of the user of this process.
        user: u32,
    },
    /// The directory belongs to root, and users may write to it who have nothing to do with this process.
    #[error(
        "`{}` belongs to root and has the mode {mode:04o}, so other users may replace what is in it; run \
         `chown -R {user} {}` and `chmod go-w {}`, or set `fsGroup` for a volume of Kubernetes, or give another --data-dir",
        path.display(), path.display(), path.display()
    )]
    Shared {
        /// The data directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The number of the user of this process.
        user: u32,
    },
    /// The user of the server lacks the permission, or the file system is read-only.
    #[error(
        "no permission to {doing} `{}` ({source}); let the user that Tidegate runs as read and write there, \
         or give another --data-dir",
        path.display()
    )]
    Denied {
        /// The operation that failed.
        doing: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The disk, the quota or the file size limit is exhausted. Nothing was changed.
    #[error(
        "no room to {doing} `{}` ({source}); nothing was changed; free some space or raise the quota",
        path.display()
    )]
    Full {
        /// The operation that failed.
        doing: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system failed in another way.
    #[error("cannot {doing} `{}`: {source}; give another --data-dir if this cannot be changed", path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file of a version is damaged.
    #[error("`{}` is not a version of the rules", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        source: BadVersion,
    },
    /// These rules could not be read again once written, so they were not written.
    #[error("the rules cannot be stored as a file")]
    Unwritable(#[source] BadVersion),
    /// The largest version number is used.
    #[error("no number is left for another version; move the last file in `{}` away", path.display())]
    NoNumberLeft {
        /// The folder of the versions.
        path: PathBuf,
    },
}

impl DataDirError {
    /// The error for a system error while `doing` something with `path`.
    pub(super) fn new(doing: &'static str, path: &Path, source: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let path = path.to_path_buf();
        match source.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Self::Full {
                doing,
                path,
                source,
            },
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Self::Denied {
                doing,
                path,
                source,
            },
            _ => Self::Io {
                doing,
                path,
                source,
            },
        }
    }
}

impl DataDirError {
    /// The error for a write to a directory that was opened read-only.
    pub(crate) fn read_only(path: &Path) -> Self {
        Self::new("write", path, io::ErrorKind::PermissionDenied.into())
    }
}

fn in_parentheses(process: Option<u32>) -> String {
    process.map_or_else(String::new, |id| format!(" (process {id})"))
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_full_disk_has_its_own_error() {
        let table = [
            (Errno::NOSPC, "full"),
            (Errno::DQUOT, "full"),
            (Errno::FBIG, "full"),
            (Errno::ACCESS, "denied"),
            (Errno::PERM, "denied"),
            (Errno::ROFS, "denied"),
            (Errno::IO, "io"),
            (Errno::MFILE, "io"),
        ];
        for (errno, expected) in table {
            let error = DataDirError::new("write", Path::new("x"), errno.into());
            let found = match error {
                DataDirError::Full { .. } => "full",
                DataDirError::Denied { .. } => "denied",
                _ => "io",
            };
            assert_eq!(found, expected, "{errno:?}");
        }
    }
}
