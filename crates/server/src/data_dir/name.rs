//! The names of the files in the folder of versions. Files with other names are left alone.

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
    /// The temporary file of the version with this number.
    Temporary(u64),
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
            ".json.tmp" => Some(Self::Temporary(number)),
            _ => None,
        }
    }

    /// The path of the file with this name in the folder.
    pub(super) fn within(self, folder: &Path) -> PathBuf {
        folder.join(match self {
            Self::Version(number) => format!("{number:0DIGITS$}.json"),
            Self::SetAside(number) => format!("{number:0DIGITS$}.json.corrupt"),
            Self::Temporary(number) => format!("{number:0DIGITS$}.json.tmp"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_were_written() {
        for number in [1, 12, LAST_NUMBER] {
            for name in [
                Name::Version(number),
                Name::SetAside(number),
                Name::Temporary(number),
            ] {
                let path = name.within(Path::new("rules"));
                let text = path.file_name().and_then(|name| name.to_str()).unwrap();
                assert_eq!(Name::parse(text), Some(name));
            }
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
