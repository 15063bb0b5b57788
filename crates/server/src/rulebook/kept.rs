//! Earlier versions of the rules: which are kept, and what they were.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;
use tidegate::StoreError;

use super::{Origin, RuleBook};
use crate::data_dir::{DataDirError, Row};

/// How many versions are kept of rules that come from elsewhere.
const MAX_VERSIONS: usize = 100;
/// How much text of such versions is kept in memory, in bytes.
const MAX_TEXT: usize = 16 << 20;

/// A version of the rules that is kept.
#[derive(Debug, Clone)]
pub struct KeptRules {
    /// When it was made, by whom, and the change.
    pub row: Row,
    /// The rules: a list.
    pub rules: Arc<Value>,
}

/// Why a version of the rules cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// There never was such a version, or it is not kept any more.
    #[error(
        "there is no version {version} of the rules; kept: {}; `/v1/rules/history` lists them",
        ranges(kept)
    )]
    NoSuchVersion {
        /// The version that was asked for.
        version: u64,
        /// Those that are kept, newest first.
        kept: Vec<u64>,
    },
    /// Redis, which has the rules, does not answer.
    #[error(
        "the rules are in Redis, which does not answer: {0}; repeat it when `/readyz` says `ready`"
    )]
    Unreachable(#[from] StoreError),
    /// The data directory cannot be read.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Interrupted,
}

/// Numbers in short: `1 to 3, 5`.
fn ranges(newest_first: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &version in newest_first.iter().rev() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == version => *last = version,
            _ => ranges.push((version, version)),
        }
    }
    if ranges.is_empty() {
        return "none".to_owned();
    }
    let range = |&(first, last): &(u64, u64)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first} to {last}")
        }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(", ")
}

impl RuleBook {
    /// The versions that are known, newest first.
    pub async fn history(&self) -> Result<Vec<Row>, StoreError> {
        match &self.origin {
            Origin::File(file) => Ok(file.versions.lock().rows()),
            Origin::Xds(xds) => Ok(xds.versions.lock().rows()),
            Origin::DataDir(data_dir) => Ok(data_dir.history()),
            Origin::Shared(shared) => shared.history().await,
        }
    }

    /// The rules of a version that is kept.
    pub async fn kept(&self, version: u64) -> Result<KeptRules, VersionError> {
        let rules = match &self.origin {
            Origin::File(file) => file.versions.lock().rules(version),
            Origin::Xds(xds) => xds.versions.lock().rules(version),
            Origin::DataDir(data_dir) => {
                let data_dir = Arc::clone(data_dir);
                let reading = tokio::task::spawn_blocking(move || data_dir.read(version));
                let read = reading.await.map_err(|_| VersionError::Interrupted)??;
                read.map(|version| version.rules)
            }
            Origin::Shared(shared) => shared.read(version).await?,
        };
        let rows = self.history().await?;
        let row = rows.iter().find(|row| row.version == version);
        match (row, rules) {
            (Some(row), Some(rules)) => Ok(KeptRules {
                row: row.clone(),
                rules,
            }),
            _ => Err(VersionError::NoSuchVersion {
                version,
                kept: self.readable(&rows),
            }),
        }
    }

    /// The version before another, among those that are kept; zero, the empty set, before the first.
    pub async fn before(&self, version: u64) -> Result<u64, VersionError> {
        let rows = self.history().await?;
        let earlier = rows.iter().map(|row| row.version);
        let earlier = earlier.filter(|earlier| *earlier < version).max();
        match earlier {
            Some(earlier) => Ok(earlier),
            None if version <= 1 => Ok(0),
            None => Err(VersionError::NoSuchVersion {
                version: version - 1,
                kept: self.readable(&rows),
            }),
        }
    }

    /// The versions of these rows whose rules can be read.
    fn readable(&self, rows: &[Row]) -> Vec<u64> {
        let all = rows.iter().map(|row| row.version);
        let versions = match &self.origin {
            Origin::File(file) => file.versions.lock(),
            Origin::Xds(xds) => xds.versions.lock(),
            Origin::DataDir(_) | Origin::Shared(_) => return all.collect(),
        };
        let is_kept = |version: &u64| versions.text(*version).is_some();
        all.filter(is_kept).collect()
    }
}

/// The versions since the start of rules that come from elsewhere, oldest first, with the rules of the newest as JSON text.
#[derive(Default)]
pub(super) struct KeptVersions(VecDeque<(Row, Option<String>)>);

impl KeptVersions {
    pub(super) fn push(&mut self, row: Row, rules: &Value) {
        self.0.push_back((row, Some(rules.to_string())));
        if self.0.len() > MAX_VERSIONS {
            self.0.pop_front();
        }
        let mut size = 0;
        for (_, text) in self.0.iter_mut().rev().skip(1) {
            size += text.as_ref().map_or(0, String::len);
            if size > MAX_TEXT {
                *text = None;
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        self.0.iter().rev().map(|(row, _)| row.clone()).collect()
    }

    fn text(&self, version: u64) -> Option<&String> {
        let found = self.0.iter().find(|(row, _)| row.version == version);
        found.and_then(|(_, text)| text.as_ref())
    }

    fn rules(&self, version: u64) -> Option<Arc<Value>> {
        serde_json::from_str(self.text(version)?).ok().map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate::Timestamp;

    use super::*;

    #[test]
    fn versions_are_listed_in_short() {
        #[rustfmt::skip]
        let table: [(&[u64], &str); 4] = [
            (&[],                   "none"),
            (&[7],                  "7"),
            (&[5, 4, 3],            "3 to 5"),
            (&[9, 8, 5, 3, 2, 1],   "1 to 3, 5, 8 to 9"),
        ];
        for (versions, text) in table {
            assert_eq!(ranges(versions), text);
        }
    }

    #[test]
    fn the_texts_of_a_file_are_bounded_and_the_newest_is_always_there() {
        let row = |version| Row {
            version,
            at: Timestamp::from_micros(0),
            by: "file".to_owned(),
            changes: Vec::new(),
        };
        let large = json!(["x".repeat(MAX_TEXT / 2)]);
        let mut versions = KeptVersions::default();
        for version in 1..=4 {
            versions.push(row(version), &large);
        }
        let kept = |versions: &KeptVersions| -> Vec<bool> {
            let rows = versions.rows();
            let kept = rows.iter().map(|row| versions.rules(row.version).is_some());
            kept.collect()
        };
        assert_eq!(kept(&versions), [true, true, false, false]);
        for version in 5..=200 {
            versions.push(row(version), &json!([]));
        }
        assert_eq!(versions.rows().len(), MAX_VERSIONS);
        assert_eq!(versions.rules(200), Some(Arc::new(json!([]))));
    }
}
