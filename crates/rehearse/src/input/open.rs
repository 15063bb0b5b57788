//! Opens logs and finds out the format of each, before anything is decided.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::InputSettings;
use super::bytes::decompressed;
use super::lines::{CutLine, LogLines};
use crate::describe::Describer;
use crate::read::{
    FormatName, LineProblem, LineReader, ReadTerms, SNIFFED_LINES, Sniffed, TimeReader, sniff,
};

/// Opens a log, as often as it is asked to.
pub type OpenLog = Arc<dyn Fn() -> io::Result<Box<dyn Read + Send>> + Send + Sync>;

/// A log.
#[derive(Clone)]
pub struct LogInput {
    /// Its name in reports.
    pub name: String,
    /// Its size in bytes, if that is known.
    pub size: Option<u64>,
    /// Opens it.
    pub open: OpenLog,
}

/// Why logs cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenLogError {
    /// A file could not be opened or read.
    #[error("cannot read `{file}`: {source}")]
    Io {
        /// Its name.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// No format reads the file.
    #[error(
        "`{file}`: no format reads half of its first {SNIFFED_LINES} lines; name one with `--format` or describe the lines with `--log-format` (its first line: {reason})"
    )]
    UnknownFormat {
        /// Its name.
        file: String,
        /// Why its first line is not in the combined format.
        reason: String,
    },
}

/// A log whose format is known.
pub(super) struct OpenedLog {
    pub(super) name: String,
    pub(super) lines: LogLines,
    /// The lines that were looked at to find the format; none of those that are too long.
    pub(super) first: Vec<Option<Vec<u8>>>,
    pub(super) reader: LineReader,
}

/// All logs, opened.
pub(crate) struct OpenLogs {
    pub(super) logs: Vec<OpenedLog>,
    /// How many bytes the files have, if that is known.
    pub(super) size: Option<u64>,
}

impl OpenLogs {
    pub(crate) fn open(
        inputs: &[LogInput],
        settings: &InputSettings,
        describer: &Describer,
        bytes: &Arc<AtomicU64>,
    ) -> Result<Self, OpenLogError> {
        let mut logs = Vec::with_capacity(inputs.len());
        for input in inputs {
            let io = |source| OpenLogError::Io {
                file: input.name.clone(),
                source,
            };
            let stream = (input.open)().and_then(|stream| decompressed(stream, Arc::clone(bytes)));
            let mut lines = LogLines::new(stream.map_err(io)?);
            let mut first = Vec::new();
            let terms = || ReadTerms {
                times: TimeReader::new(settings.time_format.clone(), settings.zone.clone()),
                reads_headers: describer.reads_headers,
                keeps_values: !settings.map.is_empty(),
                named: Arc::clone(&describer.named),
            };
            let format = match (&settings.template, settings.format) {
                (Some(_), _) => FormatName::Template,
                (None, Some(format)) => format,
                (None, None) => {
                    while first.len() < SNIFFED_LINES
                        && let Some(line) = lines.next().map_err(io)?
                    {
                        first.push(match line {
                            CutLine::Text(text) => Some(text.to_vec()),
                            CutLine::TooLong => None,
                        });
                    }
                    found(&first, &input.name, &terms)?
                }
            };
            logs.push(OpenedLog {
                name: input.name.clone(),
                lines,
                first,
                reader: LineReader::new(format, settings.template.clone(), terms()),
            });
        }
        let size = inputs.iter().map(|input| input.size).sum();
        Ok(Self { logs, size })
    }

    /// What the logs have.
    pub(crate) fn traits(&self, settings: &InputSettings) -> LogTraits {
        let template = settings.template.as_ref();
        let mut formats = self.logs.iter().map(|log| log.reader.format);
        let have_hashes = formats
            .clone()
            .any(|format| format == FormatName::Recording);
        LogTraits {
            have_durations: settings.map.has("duration")
                || template.is_some_and(crate::read::LineTemplate::has_durations)
                || formats.any(FormatName::has_durations),
            have_hashes,
        }
    }
}

/// What logs have that not all have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogTraits {
    /// Whether any of them says how long requests took.
    pub(crate) have_durations: bool,
    /// Whether any of them is a recording.
    pub(crate) have_hashes: bool,
}

/// The format of a file by its first lines. An empty one could have any.
fn found(
    first: &[Option<Vec<u8>>],
    name: &str,
    terms: &dyn Fn() -> ReadTerms,
) -> Result<FormatName, OpenLogError> {
    let texts: Vec<Vec<u8>> = first.iter().flatten().cloned().collect();
    match sniff(&texts, terms) {
        Sniffed::Format(format) => Ok(format),
        Sniffed::Empty => Ok(FormatName::Combined),
        Sniffed::Unknown => {
            let file = name.to_owned();
            let mut reader = LineReader::new(FormatName::Combined, None, terms());
            let mut problems = texts.iter().filter_map(|line| match reader.read(line) {
                Err(LineProblem::Malformed(reason)) => Some(reason),
                _ => None,
            });
            let reason = problems.next().unwrap_or("it is no request").to_owned();
            Err(OpenLogError::UnknownFormat { file, reason })
        }
    }
}
