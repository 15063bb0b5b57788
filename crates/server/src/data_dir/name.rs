//! The names of the files in the folder of versions. Files with other names are left alone.

use std::io;
use std::path::{Path, PathBuf};

/// How many digits a number has in the name of a file, so that names sort as numbers do.
const DIGITS: usize = 12;

/// The largest number that a name has room for.
pub(super) const LAST_NUMBER: u64 = 999_999_999_999;

/// A file in the folder of versions, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// The version with this number.
    Version(u64),
    /// A damaged file that was set aside, of the version with this number.
    SetAside(u64),
    /// A file that was to become a version.
    Temporary,
}

impl Name {
    /// Parses a file name; `None` if it is not one of ours.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (digits, ending) = name.split_at_checked(DIGITS)?;
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let number = digits.parse().ok().filter(|number| *number > 0)?;
        match ending {
            ".json" => Some(Self::Version(number)),
            ".json.corrupt" => Some(Self::SetAside(number)),
            temporary if temporary.starts_with(".json.") && temporary.ends_with(TEMPORARY) => {
                Some(Self::Temporary)
            }
            _ => None,
        }
    }
}

/// The path of the version with this number.
pub(super) fn version(number: u64, folder: &Path) -> PathBuf {
    folder.join(format!("{number:0DIGITS$}.json"))
}

/// The path of a damaged file that was set aside, of the version with this number.
pub(super) fn set_aside(number: u64, folder: &Path) -> PathBuf {
    folder.join(format!("{number:0DIGITS$}.json.corrupt"))
}

/// The end of the name of a file that is not complete.
pub(super) const TEMPORARY: &str = ".tmp";

/// A name for a file that is to become `path`, which no other process can foresee.
pub(super) fn temporary(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}{TEMPORARY}", u64::from_ne_bytes(random)));
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_were_written() {
        for number in [1, 12, LAST_NUMBER] {
            let path = version(number, Path::new("rules"));
            for (path, name) in [
                (path.clone(), Name::Version(number)),
                (
                    set_aside(number, Path::new("rules")),
                    Name::SetAside(number),
                ),
                (temporary(&path).unwrap(), Name::Temporary),
            ] {
                let text = path.file_name().and_then(|name| name.to_str()).unwrap();
                assert_eq!(Name::parse(text), Some(name));
            }
            assert_ne!(temporary(&path).unwrap(), temporary(&path).unwrap());
        }
    }

    #[test]
    fn other_names_are_not_ours() {
        let names = [
            "",
            "notes.txt",
            "12.json",
            "000000000000.json",
            "+00000000012.json",
            "0000000000012.json",
            "000000000012.json~",
            "000000000012.JSON",
            "00000000001\u{e9}.json",
        ];
        for name in names {
            assert_eq!(Name::parse(name), None, "{name}");
        }
    }
}
