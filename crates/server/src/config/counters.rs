//! The setting `counters`: whether counters survive a restart, and how often they are written.

use tidegate::Micros;
use tidegate::document::{Fields, Problems};

use super::read::span;
use super::settings::COUNTERS;

/// How often counters are written by default.
const DEFAULT: Micros = Micros::from_seconds(10);
const SHORTEST: Micros = Micros::SECOND;
const LONGEST: Micros = Micros::HOUR;

/// The interval, if snapshots are on: never with the setting `unless`.
pub(super) fn read(
    fields: &Fields<'_>,
    unless: Option<&str>,
    notes: &mut Vec<String>,
    problems: &mut Problems,
) -> Option<Micros> {
    let written = fields.take("counters").map(|(spot, node)| {
        let fields = Fields::new(node, spot.clone(), &COUNTERS, problems)?;
        if fields.take("snapshot").is_none() {
            let message = "give `snapshot`, how often counters are written, such as `{snapshot: 10s}`, or `{snapshot: off}`";
            problems.error(&node.place, &spot, message);
        }
        let snapshot = fields.parsed("snapshot", interval, problems).flatten();
        fields.done(problems);
        snapshot
    });
    match (unless, written) {
        (Some(setting), Some(Some(_))) => {
            let note = format!("the setting `counters` has no effect with `{setting}`");
            notes.push(note);
            None
        }
        (Some(_), _) => None,
        (None, written) => written.unwrap_or(Some(DEFAULT)),
    }
}

fn interval(text: &str) -> Result<Option<Micros>, String> {
    if text == "off" {
        return Ok(None);
    }
    let expected = "expected `1s` to `1h`, or `off`";
    match span(text) {
        Ok(interval) if (SHORTEST..=LONGEST).contains(&interval) => Ok(Some(interval)),
        Ok(_) => Err(format!("`{text}` is out of range; {expected}")),
        Err(problem) => Err(format!("{problem}; {expected}")),
    }
}
