//! Opens logs and finds out the format of each, before anything is decided.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::bytes::decompressed;
use super::lines::{CutLine, LogLines};
use super::{InputProgress, InputSettings};
use crate::describe::{Describer, FieldMap};
use crate::read::{
    FormatName, LineProblem, LineReader, ReadTerms, SNIFFED_LINES, Sniffed, TimeReader, sniff,
};

/// How soon it is noticed that reading was stopped.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

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
    #[error("cannot read `{file}`")]
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
    /// Whether its lines say how long requests took; an empty one says nothing else.
    pub(super) has_durations: bool,
    pub(super) reader: LineReader,
}

/// All logs, opened.
pub(crate) struct OpenLogs {
    pub(super) logs: Vec<OpenedLog>,
    /// How many bytes the files have, if that is known.
    pub(super) size: Option<u64>,
}

impl OpenLogs {
    /// Opens the logs. If reading is stopped meanwhile, a log that waits for its writer has what was read of it.
    pub(crate) fn open(
        inputs: &[LogInput],
        settings: &InputSettings,
        describer: &Describer,
        progress: &InputProgress,
    ) -> Result<Self, OpenLogError> {
        progress.is_reading.store(true, Ordering::Relaxed);
        let mut logs = Vec::with_capacity(inputs.len());
        for input in inputs {
            let io = |source| OpenLogError::Io {
                file: input.name.clone(),
                source,
            };
            let terms = || ReadTerms {
                times: TimeReader::new(settings.time_format.clone(), settings.zone.clone()),
                reads_headers: describer.reads_headers,
                keeps_values: !settings.map.is_empty(),
                named: Arc::clone(&describer.named),
            };
            let known = match &settings.template {
                Some(_) => Some(FormatName::Template),
                None => settings.format,
            };
            let sniffed = if known.is_some() { 0 } else { SNIFFED_LINES };
            let (lines, first) = begun(input, sniffed, progress).map_err(io)?;
            let format = match known {
                Some(format) => format,
                None => found(&first, &input.name, &settings.map, &terms)?,
            };
            let is_empty = known.is_none() && first.iter().flatten().all(Vec::is_empty);
            let template = settings.template.as_ref();
            logs.push(OpenedLog {
                name: input.name.clone(),
                lines,
                first,
                has_durations: is_empty
                    || settings.map.has("duration")
                    || template.is_some_and(crate::read::LineTemplate::has_durations)
                    || format.has_durations(),
                reader: LineReader::new(format, settings.template.clone(), terms()),
            });
        }
        let size = inputs.iter().map(|input| input.size).sum();
        Ok(Self { logs, size })
    }

    /// What the logs have.
    pub(crate) fn traits(&self) -> LogTraits {
        let mut logs = self.logs.iter();
        let mut without = logs.clone().filter(|log| !log.has_durations);
        LogTraits {
            without_durations: without.next().map(|log| log.name.clone()),
            have_hashes: logs.any(|log| log.reader.format == FormatName::Recording),
        }
    }
}

/// What logs have that not all have.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogTraits {
    /// The first of them that does not say how long requests took.
    pub(crate) without_durations: Option<String>,
    /// Whether any of them is a recording.
    pub(crate) have_hashes: bool,
}

impl LogTraits {
    /// Whether all of them say how long requests took.
    pub(crate) fn have_durations(&self) -> bool {
        self.without_durations.is_none()
    }
}

/// What a thread that opens a log sends.
enum FromOpening {
    /// One of its first lines; none if it is too long.
    Line(Option<Vec<u8>>),
    /// The lines after these.
    Rest(LogLines),
    Failed(io::Error),
}

/// The first lines of a log, and those after them. Opening a pipe and reading its first lines may take as long as its
/// writer does; if reading is stopped meanwhile, there are no others.
fn begun(
    input: &LogInput,
    count: usize,
    progress: &InputProgress,
) -> io::Result<(LogLines, Vec<Option<Vec<u8>>>)> {
    let (sender, receiver) = channel();
    let (open, bytes) = (Arc::clone(&input.open), Arc::clone(&progress.bytes));
    let run = move || {
        // There is no receiver any more if reading was stopped.
        let _ = sender.send(match begin(&open, bytes, count, &sender) {
            Ok(lines) => FromOpening::Rest(lines),
            Err(error) => FromOpening::Failed(error),
        });
    };
    thread::Builder::new()
        .name("open-log".to_owned())
        .spawn(run)?;
    let mut first = Vec::new();
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(FromOpening::Line(line)) => first.push(line),
            Ok(FromOpening::Rest(lines)) => return Ok((lines, first)),
            Ok(FromOpening::Failed(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) if !progress.stop.load(Ordering::Relaxed) => {}
            Err(_) => return Ok((LogLines::new(Box::new(io::empty())), first)),
        }
    }
}

/// Opens a log and sends its first lines.
fn begin(
    open: &OpenLog,
    bytes: Arc<AtomicU64>,
    count: usize,
    sender: &Sender<FromOpening>,
) -> io::Result<LogLines> {
    let mut lines = LogLines::new(decompressed(open()?, bytes)?);
    for _ in 0..count {
        let line = match lines.next()? {
            Some(CutLine::Text(text)) => Some(text.to_vec()),
            Some(CutLine::TooLong) => None,
            None => break,
        };
        let _ = sender.send(FromOpening::Line(line));
    }
    Ok(lines)
}

/// The format of a file by its first lines. An empty one could have any.
fn found(
    first: &[Option<Vec<u8>>],
    name: &str,
    map: &FieldMap,
    terms: &dyn Fn() -> ReadTerms,
) -> Result<FormatName, OpenLogError> {
    let texts: Vec<Vec<u8>> = first.iter().flatten().cloned().collect();
    match sniff(&texts, map, terms) {
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
