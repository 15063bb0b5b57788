//! What was measured: a JSON file for each row, of its last run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::machine::MachineFacts;
use crate::row::RowOutcome;

/// How a row ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowEnd {
    Passed,
    Failed,
    Skipped,
}

/// The last run of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowResult {
    pub(crate) name: String,
    /// Of the run, as `2026-11-17`.
    pub(crate) date: String,
    /// The code that ran, as `scripts/figures` says it.
    #[serde(default = "unknown")]
    pub(crate) commit: String,
    pub(crate) machine: MachineFacts,
    pub(crate) end: RowEnd,
    /// Why it failed without figures, or was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    pub(crate) seconds: f64,
    #[serde(flatten)]
    pub(crate) outcome: RowOutcome,
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// The commit that is checked out.
pub(crate) fn commit() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/figures");
    let output = Command::new(script).arg("commit").output();
    let printed = output.ok().filter(|output| output.status.success());
    printed.map_or_else(unknown, |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

impl RowResult {
    /// The stored result of a row, if there is one.
    pub(crate) fn load(name: &str) -> anyhow::Result<Option<Self>> {
        let path = folder().join(format!("{name}.json"));
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path)?;
        let result = serde_json::from_str(&text);
        result
            .with_context(|| format!("{}", path.display()))
            .map(Some)
    }

    pub(crate) fn store(&self) -> anyhow::Result<()> {
        fs::create_dir_all(folder())?;
        let path = folder().join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(self)?;
        Ok(fs::write(path, text + "\n")?)
    }
}
