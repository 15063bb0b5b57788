//! Temporary overrides as they are kept: the records, the rows of the history, and their text.

use serde::{Deserialize, Serialize};
use tidegate::Timestamp;
use tidegate::rules::{OverrideKey, TemporaryOverride, TemporaryOverrides};

use crate::data_dir::{Row, is_sealed, seal};
use crate::seconds::micros;
use crate::shared_document::VersionText;

/// All overrides, and what was changed about them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptOverrides {
    /// In the order in which they were made.
    pub(super) overrides: Vec<KeptOverride>,
    /// Newest first.
    pub(super) rows: Vec<OverrideRow>,
}

/// A change of a temporary override. The version of its row is that of the rules in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OverrideRow {
    #[serde(flatten)]
    pub(crate) row: Row,
    #[serde(rename = "override")]
    pub(crate) mark: OverrideMark,
}

/// Which override was changed, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OverrideMark {
    pub(crate) rule: String,
    /// As the text shows it. Never has the value of a secret attribute.
    pub(crate) key: String,
    pub(crate) what: ChangeOfOverride,
    pub(crate) text: String,
}

/// What became of an override.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeOfOverride {
    Added,
    Changed,
    Removed,
}

/// A temporary override with its author.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptOverride {
    /// The id of its rule, which may be gone.
    pub(crate) rule: String,
    #[serde(flatten, with = "GrantRecord")]
    pub(crate) grant: TemporaryOverride,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    pub(crate) by: String,
    #[serde(with = "micros")]
    pub(crate) at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TemporaryOverride")]
struct GrantRecord {
    #[serde(with = "KeyRecord")]
    key: OverrideKey,
    limit: String,
    #[serde(with = "micros")]
    expires_at: Timestamp,
}

/// The client of an override. Never has the value of a secret attribute.
#[derive(Serialize, Deserialize)]
#[serde(remote = "OverrideKey", rename_all = "snake_case")]
enum KeyRecord {
    Value(String),
    Hash(#[serde(with = "HashRecord")] String),
    Digest(String),
    Entries(#[serde(with = "EntriesRecord")] Vec<OverrideKey>),
}

/// The keys of several entries.
#[derive(Serialize, Deserialize)]
struct EntriesRecord(Vec<EntryRecord>);

#[derive(Serialize, Deserialize)]
struct EntryRecord(#[serde(with = "KeyRecord")] OverrideKey);

#[derive(Serialize, Deserialize)]
struct HashRecord {
    hash: String,
}

impl KeptOverride {
    /// Whether it has not ended.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        now < self.grant.expires_at
    }
}

impl KeptOverrides {
    /// What the gate decides by.
    pub(super) fn in_force(&self) -> TemporaryOverrides {
        let mut by_rule = TemporaryOverrides::new();
        for one in &self.overrides {
            let of_rule = by_rule.entry(one.rule.clone()).or_default();
            of_rule.push(one.grant.clone());
        }
        by_rule
    }

    /// The text that is kept in Redis. The rows are in it, and not next to it.
    pub(super) fn to_shared(&self) -> VersionText {
        VersionText {
            text: self.to_json(),
            row: String::new(),
        }
    }

    pub(super) fn to_json(&self) -> String {
        // All of it is plain data, so it can be written.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    pub(super) fn from_json(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The text of the file in the data directory, with a checksum.
    pub(super) fn to_file(&self) -> Vec<u8> {
        seal(&self.to_json())
    }

    pub(super) fn from_file(text: &[u8]) -> Option<Self> {
        is_sealed(text).then(|| Self::from_json(text)).flatten()
    }
}

impl HashRecord {
    fn serialize<S: serde::Serializer>(hash: &str, serializer: S) -> Result<S::Ok, S::Error> {
        let hash = hash.to_owned();
        Serialize::serialize(&Self { hash }, serializer)
    }

    fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        let record: Self = Deserialize::deserialize(deserializer)?;
        Ok(record.hash)
    }
}

impl EntriesRecord {
    fn serialize<S: serde::Serializer>(
        keys: &[OverrideKey],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let keys = keys.iter().cloned().map(EntryRecord);
        Serialize::serialize(&Self(keys.collect()), serializer)
    }

    fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<OverrideKey>, D::Error> {
        let record: Self = Deserialize::deserialize(deserializer)?;
        Ok(record.0.into_iter().map(|entry| entry.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_read_as_they_were_written_and_no_damage_goes_unseen() {
        let key = [
            OverrideKey::Value("u1".to_owned()),
            OverrideKey::Hash("sha256:00".to_owned()),
            OverrideKey::Digest("0123456789ab".to_owned()),
            OverrideKey::Entries(vec![
                OverrideKey::Value("u1".to_owned()),
                OverrideKey::Digest("0123456789ab".to_owned()),
            ]),
        ];
        let at = Timestamp::from_micros(1_794_770_000_250_001);
        let kept = KeptOverrides {
            overrides: key
                .into_iter()
                .map(|key| KeptOverride {
                    rule: "per-user".to_owned(),
                    grant: TemporaryOverride {
                        key,
                        limit: "100/minute".to_owned(),
                        expires_at: at,
                    },
                    reason: Some("\"quoted\" \u{1f30a}".to_owned()),
                    by: "ops".to_owned(),
                    at,
                })
                .collect(),
            rows: vec![OverrideRow {
                row: Row {
                    version: 7,
                    at,
                    by: "ops".to_owned(),
                    changes: vec!["added".to_owned()],
                },
                mark: OverrideMark {
                    rule: "per-user".to_owned(),
                    key: "u1".to_owned(),
                    what: ChangeOfOverride::Added,
                    text: "added".to_owned(),
                },
            }],
        };
        assert_eq!(
            KeptOverrides::from_json(kept.to_json().as_bytes()).as_ref(),
            Some(&kept)
        );
        let file = kept.to_file();
        assert_eq!(KeptOverrides::from_file(&file).as_ref(), Some(&kept));
        for index in 0..file.len() {
            assert_eq!(KeptOverrides::from_file(&file[..index]), None, "{index}");
            let mut damaged = file.clone();
            damaged[index] ^= 1;
            assert_eq!(KeptOverrides::from_file(&damaged), None, "{index}");
        }
        let nothing = KeptOverrides::default();
        assert_eq!(KeptOverrides::from_file(&nothing.to_file()), Some(nothing));
    }
}
