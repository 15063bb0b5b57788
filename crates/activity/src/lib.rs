//! Live activity: what happened lately, per rule and in total, in bounded memory.
//!
//! [`LiveActivity`] is the entry point. A decision calls [`RuleActivity::used`] or [`RuleActivity::denied`] for each
//! rule, which updates one table of keys (`table.rs`) under a lock that its thread seldom shares. Once a second
//! [`LiveActivity::sample`] takes the counters of the rules into time series (`series.rs`); every 10 seconds it turns
//! the tables into summaries (`summary.rs`) for the windows of a minute and an hour (`windows.rs`).
//!
//! No I/O, and no clock: times are Unix seconds that the caller provides.

#![forbid(unsafe_code)]

mod budget;
mod candidate;
mod counts;
mod coverage;
mod distinct;
mod distinct_sketch;
mod evidence;
mod evidence_bytes;
mod history;
#[cfg(test)]
mod instances_tests;
mod live;
mod names;
mod part;
mod part_bytes;
mod record;
mod room;
mod rule;
mod seeded_hasher;
mod seen_request;
mod series;
mod series_log;
mod shard;
mod summary;
mod table;
mod text_bytes;
mod top;
mod totals;
#[cfg(test)]
mod traces_tests;
mod tracker;
mod windows;

pub use candidate::{candidate_of_rule, rule_of_candidate};
pub use counts::OutcomeCounts;
pub use coverage::Coverage;
pub use distinct_sketch::DistinctSketch;
pub use evidence::{DeniedRequest, KeptAttribute, LastDecision, ShowRequests};
pub use live::{ActivitySeries, ActivitySettings, LiveActivity, RuleSeries};
pub use names::{KeyName, KeyPart, NAME_LENGTH};
pub use part::{ActivityPart, KeyList, ListedKey, NamedKey, PartSeries, RulePart};
pub use rule::RuleActivity;
pub use seen_request::{RequestTexts, SeenClient, SeenRequest};
pub use series::{MINUTES, SECONDS, SeriesSpan};
pub use top::{KeySort, KeyWindow, TopKey, TopKeys};
