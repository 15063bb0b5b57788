//! Finds out which format a file has: the one that reads most of its first lines.

use super::combined::is_common;
use super::format::{FormatName, LineReader, ReadTerms};
use super::line::LineProblem;
use crate::describe::FieldMap;

/// How many lines are looked at.
pub(crate) const SNIFFED_LINES: usize = 100;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sniffed {
    Format(FormatName),
    /// There is no line to find it by.
    Empty,
    /// No format reads half of the lines.
    Unknown,
}

/// The format that reads most of these lines, and at least half of them; of equals the first. The time of a line may be
/// where the map says.
pub(crate) fn sniff(lines: &[Vec<u8>], map: &FieldMap, terms: impl Fn() -> ReadTerms) -> Sniffed {
    let filled = lines.iter().filter(|line| !line.trim_ascii().is_empty());
    let total = filled.clone().count();
    if total == 0 {
        return Sniffed::Empty;
    }
    let mut best: Option<(usize, FormatName)> = None;
    for format in FormatName::NAMED {
        // The same lines as the combined format, which says which of the two it is.
        if format == FormatName::Common {
            continue;
        }
        let mut reader = LineReader::new(format, None, terms());
        let (mut requests, mut ignored, mut common) = (0, 0, 0);
        for line in filled.clone() {
            match reader.read(line) {
                Ok(request) if request.time.is_some() || map.has_time(&request) => {
                    requests += 1;
                    common += usize::from(is_common(line));
                }
                Ok(_) | Err(LineProblem::Malformed(_)) => {}
                Err(LineProblem::Ignored) => ignored += 1,
            }
        }
        let is_common = format == FormatName::Combined && 2 * common > requests;
        let format = if is_common {
            FormatName::Common
        } else {
            format
        };
        // Any JSON could be another message of a log in JSON, and any first line could name columns.
        let is_known_by_form = matches!(
            format,
            FormatName::Alb | FormatName::Envoy | FormatName::Haproxy | FormatName::Vhost
        ) || matches!(format, FormatName::Combined | FormatName::Common);
        let read = match requests {
            0 if !is_known_by_form => 0,
            requests => requests + ignored,
        };
        if 2 * read >= total && best.is_none_or(|(most, _)| read > most) && read > 0 {
            best = Some((read, format));
        }
    }
    best.map_or(Sniffed::Unknown, |(_, format)| Sniffed::Format(format))
}
