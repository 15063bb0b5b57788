//! Tries rules on recorded traffic, before they meet real traffic.
//!
//! Lines of logs become requests (`read/`, without I/O; `input/` orders those of several files), which the gate and the
//! memory store decide at their own times (`run/`). The result is a report (`report/`). `suggest/` fits limits to a log.

#![forbid(unsafe_code)]
#![expect(
    clippy::format_push_string,
    reason = "reports are short, and written once"
)]

mod batch;
mod describe;
mod input;
mod read;
mod report;
mod run;
mod suggest;

pub use describe::{FieldMap, FieldMapError};
pub use input::{InputProgress, InputSettings, LogInput, OpenLog, OpenLogError};
pub use read::{FormatName, LineTemplate, TemplateError, TimeFormat, read_instant, read_zone};
pub use report::{HtmlTerms, grouped, key_text, noted_lines, share, to_html, to_json};
pub use run::{
    ClientNames, ScaleFactor, ScaleSettings, ShownRequest, SimulateError, Simulated,
    SimulationSettings, show, simulate,
};
pub use suggest::{
    SuggestGoal, SuggestSettings, SuggestShare, Suggested, suggest, suggestions_to_json,
    suggestions_to_yaml,
};
