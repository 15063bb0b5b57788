//! One version of the rules, and the text of the file that keeps it.
//!
//! The text is JSON that begins with a checksum of every byte after it. The checksum is against
//! accidents only; a process that can write to the data directory can write rules.

use std::hash::Hasher as _;
use std::sync::Arc;

use fnv::FnvHasher;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::Timestamp;

use crate::seconds::micros;

/// The text before the checksum; the same in every file.
const OPENING: &[u8] = b"{\n  \"checksum\": \"";

/// A version of the rules, as it was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct RulesVersion {
    /// Its number. Later versions have larger ones; some may be left out.
    pub version: u64,
    /// When it was made.
    pub at: Timestamp,
    /// The author.
    pub by: String,
    /// The changes, a line for each rule.
    pub changes: Vec<String>,
    /// The rules: always an array.
    pub rules: Arc<Value>,
    /// The version that they have in Redis, if they come from there.
    pub shared: Option<u64>,
}

/// A version that is yet to be kept, and to get its number.
#[derive(Debug, Clone, PartialEq)]
pub struct NewVersion {
    /// When it is made.
    pub at: Timestamp,
    /// The author.
    pub by: String,
    /// The changes, a line for each rule.
    pub changes: Vec<String>,
    /// The rules: has to be an array.
    pub rules: Arc<Value>,
    /// The version that they have in Redis, if they come from there.
    pub shared: Option<u64>,
}

/// A version without its rules, as the history shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its number.
    #[serde(default)]
    pub version: u64,
    /// When it was made.
    #[serde(with = "micros")]
    pub at: Timestamp,
    /// The author.
    pub by: String,
    /// The changes, a line for each rule.
    pub changes: Vec<String>,
}

impl From<&RulesVersion> for Row {
    fn from(version: &RulesVersion) -> Self {
        Self {
            version: version.version,
            at: version.at,
            by: version.by.clone(),
            changes: version.changes.clone(),
        }
    }
}

/// Why a file is not a version.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadVersion {
    /// The text is incomplete or altered.
    #[error("it does not match its checksum")]
    Checksum,
    /// It is as it was written, but not of the agreed form.
    #[error("it cannot be read")]
    Form(#[from] serde_json::Error),
    /// It is a version, but not this one.
    #[error("it holds version {found}")]
    Number {
        /// The number that it gives itself.
        found: u64,
    },
    /// It is a directory or a device.
    #[error("it is not a file")]
    NotAFile,
}

#[derive(Serialize)]
struct VersionFile<'a> {
    version: u64,
    at: u64,
    by: &'a str,
    changes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<u64>,
    rules: &'a Value,
}

#[derive(Deserialize)]
struct Read {
    version: u64,
    at: u64,
    by: String,
    changes: Vec<String>,
    #[serde(default)]
    shared: Option<u64>,
    rules: Vec<Value>,
}

/// The text of the file that keeps `new` under this number.
pub(crate) fn encode(number: u64, new: &NewVersion) -> Result<Vec<u8>, BadVersion> {
    let body = serde_json::to_string_pretty(&VersionFile {
        version: number,
        at: new.at.as_micros(),
        by: &new.by,
        changes: &new.changes,
        shared: new.shared,
        rules: &new.rules,
    })?;
    Ok(seal(&body))
}

/// A JSON object with a checksum in front of its first key.
pub(crate) fn seal(object: &str) -> Vec<u8> {
    let rest = format!("\",{}\n", object.strip_prefix('{').unwrap_or(object));
    let mut text = OPENING.to_vec();
    text.extend(checksum(rest.as_bytes()).into_bytes());
    text.extend(rest.into_bytes());
    text
}

/// Whether a text is as [`seal`] wrote it.
pub(crate) fn is_sealed(text: &[u8]) -> bool {
    let opened = text.strip_prefix(OPENING);
    let split = opened.and_then(<[u8]>::split_first_chunk::<16>);
    split.is_some_and(|(written, rest)| *written == *checksum(rest).as_bytes())
}

/// The version that this text keeps under this number.
pub(crate) fn decode(number: u64, text: &[u8]) -> Result<RulesVersion, BadVersion> {
    if !is_sealed(text) {
        return Err(BadVersion::Checksum);
    }
    let read: Read = serde_json::from_slice(text)?;
    if read.version != number {
        return Err(BadVersion::Number {
            found: read.version,
        });
    }
    Ok(RulesVersion {
        version: read.version,
        at: Timestamp::from_micros(read.at),
        by: read.by,
        changes: read.changes,
        rules: Arc::new(Value::Array(read.rules)),
        shared: read.shared,
    })
}

/// FNV-1a, 64 bits, in hex. A change of any one byte always changes it.
pub(crate) fn checksum(bytes: &[u8]) -> String {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn new() -> NewVersion {
        NewVersion {
            at: Timestamp::from_micros(1_794_770_000_250_001),
            by: "ops \"quoted\" \u{1f30a}".into(),
            changes: vec!["added per-user".into(), "changed login".into()],
            rules: Arc::new(json!([{"id": "per-user", "limit": "1/s", "x": 0.1}])),
            shared: None,
        }
    }

    #[test]
    fn the_checksum_is_fnv_1a() {
        assert_eq!(checksum(b""), "cbf29ce484222325");
        assert_eq!(checksum(b"a"), "af63dc4c8601ec8c");
        assert_eq!(checksum(b"foobar"), "85944171f73967e8");
    }

    #[test]
    fn a_version_reads_as_it_was_written() {
        let new = new();
        let text = encode(12, &new).unwrap();
        let version = decode(12, &text).unwrap();
        assert_eq!(version.version, 12);
        assert_eq!(version.at, new.at);
        assert_eq!(version.by, new.by);
        assert_eq!(version.changes, new.changes);
        assert_eq!(version.rules, new.rules);
        let plain: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(plain["version"], 12);
        assert_eq!(plain["rules"], *new.rules);
        assert_eq!((version.shared, plain.get("shared")), (None, None));
        let shared = NewVersion {
            shared: Some(7),
            ..new
        };
        let text = encode(12, &shared).unwrap();
        assert_eq!(decode(12, &text).unwrap().shared, Some(7));
    }

    #[test]
    fn no_flipped_bit_and_no_missing_end_goes_unseen() {
        let text = encode(12, &new()).unwrap();
        for index in 0..text.len() {
            assert!(decode(12, &text[..index]).is_err(), "cut at {index}");
            for bit in 0..8 {
                let mut damaged = text.clone();
                damaged[index] ^= 1 << bit;
                assert!(decode(12, &damaged).is_err(), "bit {bit} of byte {index}");
            }
        }
    }

    #[test]
    fn another_number_is_another_version() {
        let text = encode(12, &new()).unwrap();
        let error = decode(13, &text).unwrap_err();
        assert!(matches!(error, BadVersion::Number { found: 12 }));
    }

    #[test]
    fn a_right_checksum_does_not_make_it_a_version() {
        for rest in ["\"}", "\", \"version\": 12}", "\"", "\", [[[["] {
            let mut text = OPENING.to_vec();
            text.extend(checksum(rest.as_bytes()).into_bytes());
            text.extend(rest.bytes());
            assert!(matches!(decode(12, &text), Err(BadVersion::Form(_))));
        }
    }
}
