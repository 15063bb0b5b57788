//! The token that a server generates for its operator when none is configured: a file that only its user can
//! read, kept across restarts.

use std::fs::Permissions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tidegate::printable::hexadecimal;

use super::{DataDirError, LockedDir, owner};

/// The name of the file in the data directory.
pub(crate) const FILE: &str = "admin-token";

/// The random bytes in a token.
const RANDOM_BYTES: usize = 32;

/// The shortest token that is accepted, for files that people write.
const MIN_CHARACTERS: usize = 16;

/// The longest one.
const MAX_CHARACTERS: u64 = 1_024;

/// Why there is no generated token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MadeTokenError {
    /// Users other than the server's can read or change it.
    #[error(
        "`{}` has the mode {mode:04o}, so other users of this machine may have read the token in it; delete it, and the server generates a new one, or run `chmod 600 {}` if no other user has read it",
        path.display(), path.display()
    )]
    Wide {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another user made it, and knows it.
    #[error(
        "`{}` belongs to the user {owner}, who knows the token in it; delete it, and the server generates a new one",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The number of that user.
        owner: u32,
    },
    /// The file does not hold a token.
    #[error(
        "`{}` does not hold a token: one line of {MIN_CHARACTERS} to {MAX_CHARACTERS} visible characters; delete it, and the server generates a new one",
        path.display()
    )]
    NotAToken {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or created.
    #[error(transparent)]
    Directory(#[from] DataDirError),
    /// The system has no random numbers.
    #[error("the system provides no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// The token of a directory; generates one if there is none.
pub(crate) fn read_or_make(directory: &LockedDir) -> Result<String, MadeTokenError> {
    if let Some(token) = read(&directory.path, owner::is_trusted)? {
        return Ok(token);
    }
    let token = random()?;
    if directory.create(FILE, format!("{token}\n").as_bytes())? {
        return Ok(token);
    }
    // Another process created it in between.
    let path = directory.path.join(FILE);
    read(&directory.path, owner::is_trusted)?.ok_or(MadeTokenError::NotAToken { path })
}

/// The token of a directory, if there is one, of a user that `is_trusted`.
pub(super) fn read(
    directory: &Path,
    is_trusted: fn(u32) -> bool,
) -> Result<Option<String>, MadeTokenError> {
    let path = directory.join(FILE);
    let cannot_read = |error| MadeTokenError::from(DataDirError::new("read", &path, error));
    let file = match owner::open_regular(&path) {
        Ok(Some(file)) => file,
        Ok(None) => return Err(MadeTokenError::NotAToken { path }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot_read(error)),
    };
    let found = file.metadata().map_err(cannot_read)?;
    let (owner, mode) = (found.uid(), found.mode() & 0o777);
    if !is_trusted(owner) {
        return Err(MadeTokenError::Foreign { path, owner });
    }
    if mode & 0o077 != 0 {
        // Kubernetes lets the group of a volume read and write every file, which is a group of this pod alone.
        let is_closed_to_others = mode % 0o10 == 0;
        let is_by_volume = is_closed_to_others
            && owner::is_own_group(found.gid())
            && owner::is_volume_of_own_group(directory);
        let narrowed = || file.set_permissions(Permissions::from_mode(0o600));
        if !is_by_volume || narrowed().is_err() {
            return Err(MadeTokenError::Wide { path, mode });
        }
    }
    let mut text = Vec::new();
    file.take(MAX_CHARACTERS + 2)
        .read_to_end(&mut text)
        .map_err(cannot_read)?;
    let token = text.trim_ascii();
    let is_token = (MIN_CHARACTERS as u64..=MAX_CHARACTERS).contains(&(token.len() as u64))
        && token.iter().all(u8::is_ascii_graphic);
    match std::str::from_utf8(token) {
        Ok(token) if is_token => Ok(Some(token.to_owned())),
        _ => Err(MadeTokenError::NotAToken { path }),
    }
}

fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(hexadecimal(&bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_token_is_made_once_and_kept() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = LockedDir::open(temporary.path()).unwrap();
        let token = read_or_make(&directory).unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(read_or_make(&directory).unwrap(), token);
        let text = fs::read_to_string(temporary.path().join(FILE)).unwrap();
        assert_eq!(text, format!("{token}\n"));
        directory.remove(FILE).unwrap();
        assert_ne!(read_or_make(&directory).unwrap(), token);
    }

    #[test]
    fn a_file_that_is_no_token_is_an_error_and_is_left_there() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = LockedDir::open(temporary.path()).unwrap();
        let path = temporary.path().join(FILE);
        let long = "x".repeat(2_000);
        for text in ["", "\n", "short", "two words that are long", &long] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = read_or_make(&directory).unwrap_err();
            assert!(
                matches!(error, MadeTokenError::NotAToken { .. }),
                "{error:?}"
            );
            assert!(path.exists());
        }
        fs::write(&path, "chosen-by-a-person").unwrap();
        assert_eq!(read_or_make(&directory).unwrap(), "chosen-by-a-person");
        for mode in [0o640, 0o604, 0o620, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = read_or_make(&directory).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{error}");
            assert!(!error.contains("chosen"), "{error}");
        }
        let elsewhere = temporary.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(read_or_make(&directory).is_err());
    }
}
