//! Reads the answer of a language model on the side, while it passes on.
//!
//! The reader keeps a few hundred bytes, and up to 63 KiB of one event where an event may have to be left out.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::answer_paths::AnswerPaths;
use crate::document::{DocumentReader, DocumentSink};
use crate::event_hold::EventHold;
use crate::events::{EventPart, EventSplitter};
use crate::form::UsageForm;
use crate::json::JsonScanner;
use crate::tokens::TokenCounts;
use crate::{AnswerEnd, UsageResult};

/// Bytes that pass on to the client, in order.
pub type PassedBytes = SmallVec<[Bytes; 2]>;

/// How an answer is written, by its `Content-Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerKind {
    /// `text/event-stream`: JSON in the data of each event.
    Events,
    /// An object, or an array of objects.
    Json,
    /// Of another type: read if it is JSON all the same.
    Other,
}

impl AnswerKind {
    /// The kind of an answer with this `Content-Type`.
    pub fn of(content_type: Option<&[u8]>) -> Self {
        let Some(text) = content_type else {
            return Self::Json;
        };
        let essence = text.split(|&byte| byte == b';').next().unwrap_or_default();
        let essence = essence.trim_ascii().to_ascii_lowercase();
        match &essence[..] {
            b"text/event-stream" => Self::Events,
            b"" | b"application/json" => Self::Json,
            other if other.ends_with(b"+json") => Self::Json,
            _ => Self::Other,
        }
    }
}

/// Reads one answer, fed in pieces of any size.
///
/// ```
/// use bytes::Bytes;
/// use tidegate_usage::{AnswerEnd, AnswerKind, AnswerReader, TokenCounts, UsageForm, UsageResult};
///
/// let mut reader = AnswerReader::new(&UsageForm::openai(), AnswerKind::Json, 1);
/// let body = Bytes::from(r#"{"usage": {"prompt_tokens": 20, "completion_tokens": 5}}"#);
/// assert_eq!(reader.pass(body.clone())[..], [body]);
/// assert!(reader.is_final());
/// let estimate = TokenCounts::new(10, 1_000);
/// let (result, charged) = reader.charge(AnswerEnd::Complete, &estimate);
/// assert_eq!(result, UsageResult::Reported);
/// assert_eq!(charged, TokenCounts::new(20, 5));
/// ```
#[derive(Debug, Clone)]
pub struct AnswerReader {
    paths: Arc<AnswerPaths>,
    kind: AnswerKind,
    splitter: EventSplitter,
    current: CurrentDocument,
    /// Holds back events that may have to be left out.
    hold: Option<EventHold>,
    /// How many candidates have to end before usage is final.
    candidates: u64,
    is_final: bool,
    /// Whether an event could not be read.
    has_malformed: bool,
}

/// The document that is being read: of an event, or the whole body.
#[derive(Debug, Clone)]
struct CurrentDocument {
    scanner: JsonScanner,
    sink: DocumentSink,
    /// The first bytes of an event, to recognise `[DONE]`.
    head: [u8; DONE.len()],
    head_length: usize,
}

const DONE: &[u8] = b"[DONE]";

impl AnswerReader {
    /// A reader for the answer to a request that asked for this many answers at once.
    pub fn new(form: &UsageForm, kind: AnswerKind, times: u64) -> Self {
        let paths = Arc::clone(&form.answer);
        Self {
            kind,
            splitter: EventSplitter::new(),
            current: CurrentDocument {
                scanner: JsonScanner::new(),
                sink: DocumentSink::new(&paths),
                head: [0; DONE.len()],
                head_length: 0,
            },
            paths,
            hold: None,
            candidates: times,
            is_final: false,
            has_malformed: false,
        }
    }

    /// Leaves the event out that a stream has only because [`ModelRequest::include_usage`] asked for it.
    ///
    /// [`ModelRequest::include_usage`]: crate::ModelRequest::include_usage
    #[must_use]
    pub fn leave_out_usage(mut self) -> Self {
        if self.kind == AnswerKind::Events {
            self.hold = Some(EventHold::default());
        }
        self
    }

    /// Whether bytes may be left out of what passes on.
    pub fn leaves_out(&self) -> bool {
        self.hold.is_some()
    }

    /// Reads the next bytes, and returns those that pass on now.
    pub fn pass(&mut self, piece: Bytes) -> PassedBytes {
        match self.kind {
            AnswerKind::Events => self.pass_events(piece),
            AnswerKind::Json | AnswerKind::Other => {
                self.current.read(&piece, &self.paths);
                let sink = &self.current.sink;
                let is_whole = self.current.scanner.has_ended() && !sink.total.is_empty();
                self.is_final |= is_whole || self.has_final(sink);
                SmallVec::from_iter([piece])
            }
        }
    }

    fn pass_events(&mut self, piece: Bytes) -> PassedBytes {
        let Self {
            splitter,
            current,
            paths,
            hold,
            ..
        } = self;
        let mut pass = hold.as_mut().map(|hold| hold.begin());
        let (mut has_malformed, mut is_done) = (false, false);
        splitter.feed(&piece, |part| match part {
            EventPart::Data(data) => current.read(data, paths),
            EventPart::End(at) => {
                let ended = current.end_event();
                is_done |= ended.is_done;
                has_malformed |= ended.is_malformed;
                if let Some(pass) = &mut pass {
                    pass.end(at, ended.is_extra);
                }
            }
            EventPart::LineFeed(at) => {
                if let Some(pass) = &mut pass {
                    pass.line_feed(at);
                }
            }
        });
        let passed = match pass {
            Some(pass) => pass.pass(piece, current.may_be_extra()),
            None => SmallVec::from_iter([piece]),
        };
        self.has_malformed |= has_malformed;
        let sink = &self.current.sink;
        let ends = is_done && self.paths.ends_by_done && !sink.total.is_empty();
        self.is_final |= ends || self.has_final(sink);
        passed
    }

    /// Of several candidates each has an end of its own, and the usage that comes with the first has only what was
    /// written until then: settled by that, the others would be free.
    fn has_final(&self, sink: &DocumentSink) -> bool {
        let all_ended = sink.all_finished > 0 && sink.all_finished >= self.candidates;
        (sink.is_final || all_ended) && !sink.total.is_empty()
    }

    /// Ends the answer, and returns the bytes that were held back.
    pub fn end(&mut self) -> Option<Bytes> {
        let is_extra = self.kind == AnswerKind::Events && {
            let ended = self.current.end_event();
            self.has_malformed |= ended.is_malformed;
            let has_usage = !self.current.sink.total.is_empty();
            self.is_final |= has_usage && ended.is_done && self.paths.ends_by_done;
            self.is_final |= self.has_final(&self.current.sink);
            ended.is_extra
        };
        self.hold.as_mut()?.finish(is_extra)
    }

    /// Whether usage came that does not change any more. The cost may be settled, before the last bytes pass on.
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// What is charged in the end, and why, for an answer with a status of 2xx that was read to this end.
    pub fn charge(&self, end: AnswerEnd, estimate: &TokenCounts) -> (UsageResult, TokenCounts) {
        let mut sink = self.current.sink.clone();
        if end == AnswerEnd::Cut && !self.is_final {
            sink.adopt();
        }
        let reported = sink.total.reported(&self.paths);
        match (end, reported) {
            (_, Ok(Some(reported))) if self.is_final => {
                (UsageResult::Reported, reported.counts(estimate))
            }
            (AnswerEnd::Cut, Ok(Some(reported))) if !self.is_final => {
                let mut counts = reported.counts(estimate);
                counts.output = counts.output.max(estimate.output);
                (UsageResult::Cut, counts)
            }
            (AnswerEnd::Cut, _) if !self.is_final => (UsageResult::Cut, *estimate),
            (_, Err(())) => (UsageResult::Unreadable, *estimate),
            _ if self.is_broken() => (UsageResult::Unreadable, *estimate),
            (_, Ok(Some(reported))) => (UsageResult::Reported, reported.counts(estimate)),
            (_, Ok(None)) if self.has_malformed => (UsageResult::Unreadable, *estimate),
            (_, Ok(None)) => (UsageResult::Missing, *estimate),
        }
    }

    /// Whether a body that is complete is not the JSON that it should be.
    fn is_broken(&self) -> bool {
        let scanner = &self.current.scanner;
        match self.kind {
            AnswerKind::Events => false,
            _ if scanner.is_blank() => false,
            AnswerKind::Json => !scanner.is_done(),
            AnswerKind::Other => !scanner.is_done() && scanner.has_begun(),
        }
    }
}

/// What an event was.
struct EndedEvent {
    is_done: bool,
    is_extra: bool,
    is_malformed: bool,
}

impl CurrentDocument {
    fn read(&mut self, data: &[u8], paths: &AnswerPaths) {
        let room = &mut self.head[self.head_length..];
        let taken = data.len().min(room.len());
        room[..taken].copy_from_slice(&data[..taken]);
        self.head_length += taken;
        let mut reader = DocumentReader {
            sink: &mut self.sink,
            paths,
        };
        self.scanner.feed(data, &paths.paths, &mut reader);
    }

    fn end_event(&mut self) -> EndedEvent {
        let is_whole = self.scanner.is_done();
        let is_done = self.head == DONE;
        let ended = EndedEvent {
            is_done,
            is_extra: is_whole && self.sink.is_extra(),
            is_malformed: !is_whole && !is_done && !self.scanner.is_blank(),
        };
        if self.head_length > 0 {
            self.scanner.reset();
            self.sink.reset();
            self.head = [0; DONE.len()];
            self.head_length = 0;
        }
        ended
    }

    /// Whether the event that has begun may have to be left out.
    fn may_be_extra(&self) -> bool {
        !self.scanner.is_malformed() && !self.sink.has_choices()
    }
}

#[cfg(test)]
mod tests;
