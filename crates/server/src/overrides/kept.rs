//! Temporary overrides as they are kept: the records, the rows of the history, and their text.

use serde::{Deserialize, Serialize};
use tidegate::Timestamp;
use tidegate::rules::{OverrideKey, TemporaryOverride, TemporaryOverrides};

use crate::data_dir::{Row, is_sealed, seal};

/// All overrides, and what was changed about them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeptOverrides {
    /// In the order in which they were made.
    pub(super) overrides: Vec<KeptOverride>,
    /// Newest first.
    pub(super) rows: Vec<Row>,
}

/// A temporary override, and who made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptOverride {
    /// The id of its rule, which may be gone.
    pub(crate) rule: String,
    pub(crate) grant: TemporaryOverride,
    pub(crate) reason: Option<String>,
    pub(crate) by: String,
    pub(crate) at: Timestamp,
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

    /// The text that is kept in Redis.
    pub(super) fn to_json(&self) -> String {
        let document = Document {
            overrides: self.overrides.iter().map(Record::from).collect(),
            rows: self.rows.iter().map(RowRecord::from).collect(),
        };
        // All of it is plain data, so it can be written.
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    pub(super) fn from_json(text: &[u8]) -> Option<Self> {
        let document: Document = serde_json::from_slice(text).ok()?;
        Some(Self {
            overrides: document.overrides.into_iter().map(Into::into).collect(),
            rows: document.rows.into_iter().map(Into::into).collect(),
        })
    }

    /// The text of the file in the data directory, with a checksum.
    pub(super) fn to_file(&self) -> Vec<u8> {
        seal(&self.to_json())
    }

    pub(super) fn from_file(text: &[u8]) -> Option<Self> {
        is_sealed(text).then(|| Self::from_json(text)).flatten()
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    overrides: Vec<Record>,
    rows: Vec<RowRecord>,
}

/// An override in JSON. Times are microseconds since 1970.
#[derive(Serialize, Deserialize)]
struct Record {
    rule: String,
    key: KeyRecord,
    limit: String,
    expires_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    by: String,
    at: u64,
}

/// Whom an override is for. The value of a secret attribute is never in it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeyRecord {
    Value(String),
    Hash { hash: String },
    Digest(String),
}

#[derive(Serialize, Deserialize)]
struct RowRecord {
    version: u64,
    at: u64,
    by: String,
    changes: Vec<String>,
}

impl From<&KeptOverride> for Record {
    fn from(one: &KeptOverride) -> Self {
        Self {
            rule: one.rule.clone(),
            key: match one.grant.key.clone() {
                OverrideKey::Value(value) => KeyRecord::Value(value),
                OverrideKey::Hash(hash) => KeyRecord::Hash { hash },
                OverrideKey::Digest(digest) => KeyRecord::Digest(digest),
            },
            limit: one.grant.limit.clone(),
            expires_at: one.grant.expires_at.as_micros(),
            reason: one.reason.clone(),
            by: one.by.clone(),
            at: one.at.as_micros(),
        }
    }
}

impl From<Record> for KeptOverride {
    fn from(record: Record) -> Self {
        Self {
            rule: record.rule,
            grant: TemporaryOverride {
                key: match record.key {
                    KeyRecord::Value(value) => OverrideKey::Value(value),
                    KeyRecord::Hash { hash } => OverrideKey::Hash(hash),
                    KeyRecord::Digest(digest) => OverrideKey::Digest(digest),
                },
                limit: record.limit,
                expires_at: Timestamp::from_micros(record.expires_at),
            },
            reason: record.reason,
            by: record.by,
            at: Timestamp::from_micros(record.at),
        }
    }
}

impl From<&Row> for RowRecord {
    fn from(row: &Row) -> Self {
        Self {
            version: row.version,
            at: row.at.as_micros(),
            by: row.by.clone(),
            changes: row.changes.clone(),
        }
    }
}

impl From<RowRecord> for Row {
    fn from(record: RowRecord) -> Self {
        Self {
            version: record.version,
            at: Timestamp::from_micros(record.at),
            by: record.by,
            changes: record.changes,
        }
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
            rows: vec![Row {
                version: 7,
                at,
                by: "ops".to_owned(),
                changes: vec!["added".to_owned()],
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
