//! The lines of `vectors/known.jsonl` as they are written: a limit, a timeline, the known answers.
//!
//! Nothing here judges them: what an answer means for a store is for `found` to say.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tidegate_core::Micros;

/// The lines, as they are.
pub const TEXT: &str = include_str!("../../vectors/known.jsonl");

/// What is known of one limiter: a limit, a timeline, and the answer to each step of it.
#[derive(Debug, Clone, Deserialize)]
pub struct Vector {
    /// Its name, unique in the file.
    pub id: String,
    /// How the source counts, in the source's words.
    pub algorithm: String,
    /// Requests per window; none where any will do.
    pub limit: Option<Count>,
    /// The window in seconds.
    pub window_s: Option<f64>,
    /// The capacity of a bucket, if it is not the limit.
    pub burst: Option<u64>,
    /// What was used before the first step.
    pub state: Option<UsedBefore>,
    /// The timeline.
    pub steps: Vec<VectorStep>,
    /// Where it comes from.
    pub source: String,
    /// What it shows.
    #[serde(default)]
    pub notes: String,
    /// Whatever else the line says.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// Requests per window.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Count {
    /// This many.
    Exactly(u64),
    /// Any of these, written `1..9999`.
    AnyOf(String),
}

/// What was used in two neighbouring windows, the later of which starts at `bucket_start` seconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsedBefore {
    /// In the window that starts there.
    pub current: u64,
    /// In the one before.
    pub previous: u64,
    /// The start of the later one, in seconds.
    pub bucket_start: f64,
}

/// One step of a timeline, and what is known of the answer.
#[derive(Debug, Clone, Deserialize)]
pub struct VectorStep {
    /// When, in seconds.
    #[serde(default, alias = "now")]
    pub t: f64,
    /// How much it takes.
    #[serde(default = "one")]
    pub cost: u64,
    /// How often it is done.
    #[serde(default = "one")]
    pub repeat: u64,
    /// Whether the repetitions come all at once.
    #[serde(default)]
    pub concurrent: bool,
    /// What is done.
    #[serde(default)]
    pub op: Operation,
    /// Whose state it is.
    #[serde(default)]
    pub key: String,
    /// What the window has used before this step, if the source says so.
    pub counter_before: Option<u64>,
    /// Which request of its client it is, where the source counts them; steps are in that order.
    pub hit: Option<u64>,
    /// The known answers, by the source's names for them.
    #[serde(flatten)]
    pub answers: BTreeMap<String, Value>,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Charges.
    #[default]
    Charge,
    /// Asks, and takes nothing.
    Peek,
    /// Forgets what the key has used.
    Clear,
}

fn one() -> u64 {
    1
}

/// Every line of the file, in its order.
pub fn all() -> Result<Vec<Vector>, serde_json::Error> {
    serde_json::Deserializer::from_str(TEXT)
        .into_iter()
        .collect()
}

/// The whole microseconds nearest to `seconds`; none below zero.
pub(super) fn micros(seconds: f64) -> Option<Micros> {
    Duration::try_from_secs_f64(seconds).ok().map(Micros::from)
}
