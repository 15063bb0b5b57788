//! The run: requests in their order, decided by the gate at their own times.
//!
//! `gates.rs` has the gates in virtual time, `scale.rs` and `scaled.rs` those with other limits, `against.rs` those of other rules;
//! `tally.rs` counts by rule and client, `candidate.rs` what is tried, `timeline.rs` over time, `record.rs` writes decisions down.

mod against;
mod candidate;
mod checked;
mod gates;
mod limits;
mod named;
mod prepare;
mod record;
mod scale;
mod scaled;
mod shown;
mod simulate;
mod tally;
mod timeline;
mod warnings;

pub(crate) use against::ChangedDecisions;
pub(crate) use candidate::CandidateTally;
pub(crate) use checked::{check_files, check_readable};
pub(crate) use gates::VirtualGate;
pub(crate) use limits::left_out;
pub(crate) use named::{NamedValues, hash_of};
pub(crate) use prepare::{by_logs, describer, opened};
pub use scale::{ScaleFactor, ScaleSettings};
pub use shown::{ClientNames, ShownRequest, show};
pub use simulate::{SimulateError, Simulated, SimulationSettings, simulate};
pub(crate) use tally::RuleTally;
