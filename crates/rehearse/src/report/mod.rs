//! The report of a simulation: `json.rs` for programs, `html/` for people, `words.rs` for both of their reports.

mod html;
mod json;
mod words;

pub(crate) use html::rename_overrides;
pub use html::{HtmlTerms, to_html};
pub(crate) use json::input_of;
pub use json::to_json;
pub use words::{grouped, key_text, share};

use serde_json::Value;

use crate::run::Simulated;

/// How many lines are listed as problems.
const LISTED: usize = 10;

/// Microseconds as a number of seconds.
pub(crate) fn seconds(micros: u64) -> Value {
    if micros.is_multiple_of(1_000_000) {
        return Value::from(micros / 1_000_000);
    }
    #[expect(clippy::cast_precision_loss, reason = "times are below 2^53")]
    let seconds = micros as f64 / 1e6;
    Value::from(seconds)
}

/// The first lines with problems: the file, the number, the reason, and the beginning of the line, which may have
/// secrets and is for a terminal alone.
pub fn noted_lines(simulated: &Simulated) -> impl Iterator<Item = (&str, u64, &str, &[u8])> {
    let files = simulated.input.files.iter();
    let notes = files.flat_map(|file| file.notes().iter().map(move |note| (file, note)));
    notes.take(LISTED).map(|(file, note)| {
        (
            file.name.as_str(),
            note.line,
            note.reason.as_str(),
            &note.text[..],
        )
    })
}
