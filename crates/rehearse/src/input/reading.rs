//! Reads one file in a thread of its own, ahead of deciding, and sends its requests in batches.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::InputSettings;
use super::lines::CutLine;
use super::open::OpenedLog;
use crate::batch::{KeptRequest, RequestBatch};
use crate::describe::{Describer, FieldMap, reason_of};
use crate::read::{
    ExactTime, FormatName, LineProblem, LineReader, LineRequest, RecordingMark, TimeReader,
};

/// How many requests and how much text a batch has at most.
const BATCH_REQUESTS: usize = 2_048;
const BATCH_TEXT: usize = 1 << 18;
/// How many batches of a file wait to be decided.
const WAITING: usize = 4;
/// After how many lines other threads see how far reading has come.
const SEEN: u64 = 1_024;
/// How many lines of a file are listed as problems.
const LISTED: usize = 10;
/// How much of a line is kept to be shown.
const SHOWN: usize = 480;

/// How far reading has come, for other threads to see; and whether it should end.
#[derive(Debug, Default)]
pub struct InputProgress {
    /// Bytes of the files that were read.
    pub bytes: Arc<AtomicU64>,
    /// Bytes that there are; zero if that is not known.
    pub size: AtomicU64,
    /// Lines that were read.
    pub lines: AtomicU64,
    /// Whether files are opened or read, so that `stop` ends it.
    pub is_reading: AtomicBool,
    /// Set to end reading before the end.
    pub stop: AtomicBool,
}

/// What became of the lines of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileCounts {
    pub(crate) lines: u64,
    pub(crate) requests: u64,
    pub(crate) malformed: u64,
    pub(crate) ignored: u64,
    pub(crate) refused: u64,
    pub(crate) outside: u64,
    pub(crate) late: u64,
}

/// What a problem of a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineNoteKind {
    Malformed,
    Refused,
    Late,
}

/// A line that is listed as a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineNote {
    pub(crate) line: u64,
    pub(crate) kind: LineNoteKind,
    pub(crate) reason: String,
    /// The beginning of the line, for the terminal alone.
    pub(crate) text: Vec<u8>,
}

/// What a file was, once it was read.
#[derive(Debug, Default)]
pub(super) struct FileEnd {
    pub(super) counts: FileCounts,
    pub(super) notes: Vec<LineNote>,
    /// The first line that strict reading refuses.
    pub(super) first_strict: Option<LineNote>,
    /// Times in an hour that the zone has twice or not at all.
    pub(super) ambiguous: u64,
    /// Lines without anything.
    pub(super) empty: u64,
    /// Lines that a recording lost.
    pub(super) lost: u64,
    /// The attributes by which a recording has only some of the clients; of each of its parts that has only some.
    pub(super) sampled_by: Vec<Vec<String>>,
    pub(super) error: Option<io::Error>,
}

/// What a thread sends.
pub(super) enum FromFile {
    /// Requests, and what became of all lines until then.
    Requests(RequestBatch, FileCounts),
    End(Box<FileEnd>),
}

struct FileReading {
    settings: Arc<InputSettings>,
    describer: Describer,
    progress: Arc<InputProgress>,
    sender: SyncSender<FromFile>,
    batch: RequestBatch,
    end: FileEnd,
    /// Reads times that `--map` names.
    mapped_times: TimeReader,
    /// The latest time that was read, also of lines that are not decided.
    newest: u64,
}

/// Begins to read a file.
pub(super) fn spawn(
    log: OpenedLog,
    settings: &Arc<InputSettings>,
    describer: &Describer,
    progress: &Arc<InputProgress>,
) -> io::Result<Receiver<FromFile>> {
    let (sender, receiver) = sync_channel(WAITING);
    let mut reading = FileReading {
        settings: Arc::clone(settings),
        describer: describer.clone(),
        progress: Arc::clone(progress),
        sender,
        batch: RequestBatch::default(),
        end: FileEnd::default(),
        mapped_times: TimeReader::new(settings.time_format.clone(), settings.zone.clone()),
        newest: 0,
    };
    let run = move || {
        let mut log = log;
        if let Err(error) = reading.read_all(&mut log) {
            reading.end.error = Some(error);
        }
        reading.end.ambiguous = log.reader.terms.times.ambiguous + reading.mapped_times.ambiguous;
        let batch = std::mem::take(&mut reading.batch);
        // There is no receiver any more if deciding ended early.
        let _ = reading
            .sender
            .send(FromFile::Requests(batch, reading.end.counts));
        let _ = reading.sender.send(FromFile::End(Box::new(reading.end)));
    };
    thread::Builder::new()
        .name("read-log".to_owned())
        .spawn(run)?;
    Ok(receiver)
}

impl FileReading {
    fn read_all(&mut self, log: &mut OpenedLog) -> io::Result<()> {
        for line in std::mem::take(&mut log.first) {
            let line = line.as_deref().map_or(CutLine::TooLong, CutLine::Text);
            if !self.read_line(&line, &mut log.reader) {
                return Ok(());
            }
        }
        loop {
            // The writer of a pipe may take its time.
            if log.lines.is_drained() && self.batch.len() > 0 && !self.send() {
                return Ok(());
            }
            let Some(line) = log.lines.next()? else {
                return Ok(());
            };
            if !self.read_line(&line, &mut log.reader) {
                return Ok(());
            }
        }
    }

    /// Sends the requests that were read. False if there is no receiver.
    fn send(&mut self) -> bool {
        let batch = std::mem::take(&mut self.batch);
        self.sender
            .send(FromFile::Requests(batch, self.end.counts))
            .is_ok()
    }

    /// Reads a line. False if reading should end.
    fn read_line(&mut self, line: &CutLine<'_>, reader: &mut LineReader) -> bool {
        if (self.end.counts.lines + 1).is_multiple_of(SEEN) {
            if self.progress.stop.load(Ordering::Relaxed) {
                return false;
            }
            self.progress.lines.fetch_add(SEEN, Ordering::Relaxed);
        }
        self.end.counts.lines += 1;
        let CutLine::Text(text) = line else {
            self.note(LineNoteKind::Malformed, "it is longer than 1 MiB", b"");
            return !self.settings.strict;
        };
        let mut is_strict_end = false;
        match reader
            .read(text)
            .and_then(|request| self.take(request, text))
        {
            Ok(()) => {}
            Err(LineProblem::Ignored) => {
                self.end.counts.ignored += 1;
                self.end.empty += u64::from(text.trim_ascii().is_empty());
                if reader.format == FormatName::Recording {
                    self.take_mark(text);
                }
            }
            Err(LineProblem::Malformed(reason)) => {
                self.note(LineNoteKind::Malformed, reason, text);
                is_strict_end = self.settings.strict;
            }
        }
        if self.batch.len() >= BATCH_REQUESTS || self.batch.size() >= BATCH_TEXT {
            return self.send() && !is_strict_end;
        }
        !is_strict_end
    }

    fn take(&mut self, mut request: LineRequest<'_>, text: &[u8]) -> Result<(), LineProblem> {
        let map = &self.settings.map;
        if !map.is_empty() {
            take_mapped(map, &mut self.mapped_times, &mut request)?;
        }
        let time = request.time.and_then(crate::read::ExactTime::micros);
        let time = time.ok_or(LineProblem::Malformed("it has no time that can be read"))?;
        let newest_before = self.newest;
        self.newest = newest_before.max(time);
        let is_early = self
            .settings
            .since
            .is_some_and(|since| time < since.as_micros());
        if is_early
            || self
                .settings
                .until
                .is_some_and(|until| time >= until.as_micros())
        {
            self.end.counts.outside += 1;
            return Ok(());
        }
        let duration = request.duration.and_then(crate::read::ExactTime::micros);
        let (batch, describer) = (&mut self.batch, &self.describer);
        let wants = |name: &str| (describer.wants)(name);
        let mark = batch.mark();
        batch.begin(KeptRequest {
            time,
            duration,
            newest_before,
            line: self.end.counts.lines,
            ..KeptRequest::default()
        });
        match describer.describe(&request, |attributes| batch.push_part(attributes, &wants)) {
            Ok(()) => self.end.counts.requests += 1,
            Err(error) => {
                batch.return_to(mark);
                let reason = reason_of(&error);
                self.note(LineNoteKind::Refused, &reason, text);
            }
        }
        Ok(())
    }

    /// Takes what a recording says of itself: how many lines it lost, and which clients it has.
    fn take_mark(&mut self, text: &[u8]) {
        match RecordingMark::read(text) {
            Some(RecordingMark::Lost(lines)) => self.end.lost = self.end.lost.saturating_add(lines),
            Some(RecordingMark::Sampled(by)) if !self.end.sampled_by.contains(&by) => {
                self.end.sampled_by.push(by);
            }
            _ => {}
        }
    }

    fn note(&mut self, kind: LineNoteKind, reason: &str, text: &[u8]) {
        match kind {
            LineNoteKind::Malformed => self.end.counts.malformed += 1,
            LineNoteKind::Refused => self.end.counts.refused += 1,
            LineNoteKind::Late => self.end.counts.late += 1,
        }
        let is_first_strict = kind != LineNoteKind::Refused && self.end.first_strict.is_none();
        let is_listed = self.end.notes.len() < LISTED;
        if !is_first_strict && !is_listed {
            return;
        }
        let note = LineNote {
            line: self.end.counts.lines,
            kind,
            reason: reason.to_owned(),
            text: text[..text.len().min(SHOWN)].to_vec(),
        };
        if is_first_strict {
            self.end.first_strict = Some(note.clone());
        }
        if is_listed {
            self.end.notes.push(note);
        }
    }
}

/// Takes time, duration and cost where `--map` says.
fn take_mapped(
    map: &FieldMap,
    times: &mut TimeReader,
    request: &mut LineRequest<'_>,
) -> Result<(), LineProblem> {
    let value = |name: &str| {
        let sources = map.sources(name)?;
        Some(sources.iter().find_map(|source| request.values.get(source)))
    };
    let (time, duration, cost) = (value("time"), value("duration"), value("cost"));
    if let Some(time) = time {
        request.time = time.and_then(|text| times.read(&text));
    }
    if let Some(duration) = duration {
        request.duration = duration.and_then(|text| ExactTime::decimal(&text, 0));
    }
    if let Some(Some(text)) = cost {
        let cost = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.parse().ok());
        let cost: u64 = cost.ok_or(LineProblem::Malformed("its cost is not a whole number"))?;
        request.costs = Some(cost.into());
    }
    Ok(())
}
