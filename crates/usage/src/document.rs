//! What one document of an answer says: an event, an element of an array, or the whole body.

use std::ops::Range;

use smallvec::SmallVec;

use crate::answer_paths::{AnswerPaths, FinalProbe, SlotMask};
use crate::json::{JsonSink, JsonValue, MAX_NUMBER, NodeId, ROOT, WholeNumber};
use crate::tokens::TokenCounts;

/// A number that was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FoundNumber {
    #[default]
    Absent,
    Value(u64),
    Unreadable,
}

/// The numbers that were found so far. The last value of each wins; `null` is none.
#[derive(Debug, Clone)]
pub(crate) struct FoundNumbers(SmallVec<[FoundNumber; 6]>);

/// What a group of numbers adds up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sum {
    Absent,
    Value(u64),
    Unreadable,
}

/// What was reported, as far as it can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReportedUsage {
    pub(crate) input: Option<u64>,
    pub(crate) cached: u64,
    pub(crate) cache_write: u64,
    pub(crate) output: Option<u64>,
}

impl FoundNumbers {
    pub(crate) fn new(paths: &AnswerPaths) -> Self {
        Self(SmallVec::from_elem(FoundNumber::Absent, paths.slot_count))
    }

    fn set(&mut self, slots: SlotMask, slot: FoundNumber) {
        let all = self.0.iter_mut().enumerate();
        for (_, known) in all.filter(|(index, _)| slots & (1 << index) != 0) {
            *known = slot;
        }
    }

    /// Takes over what another document has.
    fn update(&mut self, newer: &Self) {
        for (known, newer) in self.0.iter_mut().zip(&newer.0) {
            if *newer != FoundNumber::Absent {
                *known = *newer;
            }
        }
    }

    fn clear(&mut self) {
        self.0.fill(FoundNumber::Absent);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|slot| *slot == FoundNumber::Absent)
    }

    fn sum(&self, slots: SlotMask) -> Sum {
        let chosen = self.0.iter().enumerate();
        let chosen = chosen.filter(|(index, _)| slots & (1 << index) != 0);
        chosen.fold(Sum::Absent, |sum, (_, slot)| match (sum, slot) {
            (sum, FoundNumber::Absent) => sum,
            (Sum::Absent, FoundNumber::Value(value)) => Sum::Value(*value),
            (Sum::Value(sum), FoundNumber::Value(value)) if sum + value <= MAX_NUMBER => {
                Sum::Value(sum + value)
            }
            _ => Sum::Unreadable,
        })
    }

    /// The usage, if any was reported. An error if a number of it is negative, has a fraction, is too large, or is
    /// something else.
    pub(crate) fn reported(&self, paths: &AnswerPaths) -> Result<Option<ReportedUsage>, ()> {
        if self.is_empty() {
            return Ok(None);
        }
        let number = |slots| match self.sum(slots) {
            Sum::Absent => Ok(None),
            Sum::Value(value) => Ok(Some(value)),
            Sum::Unreadable => Err(()),
        };
        let (input, output) = (number(paths.input)?, number(paths.output)?);
        let cached = number(paths.cached)?.unwrap_or(0);
        let cache_write = number(paths.cache_write)?.unwrap_or(0);
        if input.unwrap_or(0) + output.unwrap_or(0) > MAX_NUMBER {
            return Err(());
        }
        Ok(Some(ReportedUsage {
            input,
            cached,
            cache_write,
            output,
        }))
    }
}

impl ReportedUsage {
    /// The tokens to charge where this is all that will be reported. Input is never nothing: unreported, it is as
    /// estimated. Output that is not reported is none: embeddings have none, and Gemini leaves out a zero.
    pub(crate) fn counts(&self, estimate: &TokenCounts) -> TokenCounts {
        TokenCounts {
            input: self.input.unwrap_or(estimate.input),
            cached: self.cached,
            cache_write: self.cache_write,
            output: self.output.unwrap_or(0),
        }
    }
}

/// Collects what the documents of one answer say.
#[derive(Debug, Clone)]
pub(crate) struct DocumentSink {
    /// Of the current document.
    current: FoundNumbers,
    /// Of all documents that are complete.
    pub(crate) total: FoundNumbers,
    has_usage: bool,
    choices: FoundChoices,
    has_final_type: bool,
    finished: u64,
    /// How many candidates have ended, in all documents.
    pub(crate) all_finished: u64,
    /// Whether a complete document said that usage is final.
    pub(crate) is_final: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundChoices {
    Unknown,
    Empty,
    Some,
}

impl DocumentSink {
    pub(crate) fn new(paths: &AnswerPaths) -> Self {
        Self {
            current: FoundNumbers::new(paths),
            total: FoundNumbers::new(paths),
            has_usage: false,
            choices: FoundChoices::Unknown,
            has_final_type: false,
            finished: 0,
            all_finished: 0,
            is_final: false,
        }
    }

    fn begin(&mut self) {
        self.current.clear();
        self.has_usage = false;
        self.choices = FoundChoices::Unknown;
        self.has_final_type = false;
        self.finished = 0;
    }

    fn end(&mut self) {
        self.adopt();
        self.all_finished = self.all_finished.saturating_add(self.finished);
        self.is_final |= self.has_final_type || self.is_extra();
    }

    /// Takes over what a document has that is not complete, because its answer was cut.
    pub(crate) fn adopt(&mut self) {
        let Self { current, total, .. } = self;
        total.update(current);
    }

    /// Whether the current document is the event that a stream of chat completions has only if it was asked to include
    /// usage.
    pub(crate) fn is_extra(&self) -> bool {
        self.has_usage && self.choices == FoundChoices::Empty
    }

    /// Whether the current document has choices, and so is not that event.
    pub(crate) fn has_choices(&self) -> bool {
        self.choices == FoundChoices::Some
    }

    /// Forgets the current document, after an event.
    pub(crate) fn reset(&mut self) {
        self.begin();
    }
}

/// A sink with the paths that it looks for.
pub(crate) struct DocumentReader<'r> {
    pub(crate) sink: &'r mut DocumentSink,
    pub(crate) paths: &'r AnswerPaths,
}

impl JsonSink for DocumentReader<'_> {
    fn found(&mut self, node: NodeId, value: JsonValue<'_>, _: Range<usize>) {
        let sink = &mut *self.sink;
        if node == ROOT {
            match value {
                JsonValue::ObjectBegins => sink.begin(),
                JsonValue::ObjectEnds { .. } => sink.end(),
                _ => {}
            }
            return;
        }
        let slots = self.paths.slots_of(node);
        if slots != 0 {
            match value {
                JsonValue::Null | JsonValue::ObjectEnds { .. } | JsonValue::ArrayEnds { .. } => {}
                JsonValue::Number(WholeNumber::Value(value)) => {
                    sink.current.set(slots, FoundNumber::Value(value));
                }
                _ => sink.current.set(slots, FoundNumber::Unreadable),
            }
        }
        match (self.paths.probe_of(node), value) {
            (Some(FinalProbe::Usage), JsonValue::ObjectBegins) => sink.has_usage = true,
            // A document with a choice has choices, whatever a second key of that name says.
            (Some(FinalProbe::Choices), JsonValue::ArrayEnds { is_empty: true })
                if sink.choices == FoundChoices::Unknown =>
            {
                sink.choices = FoundChoices::Empty;
            }
            (Some(FinalProbe::Choice), _) => sink.choices = FoundChoices::Some,
            (Some(FinalProbe::Type), JsonValue::String(kind)) => {
                let mut finals = self.paths.final_types.iter();
                sink.has_final_type = finals.any(|it| it.as_bytes() == kind);
            }
            (Some(FinalProbe::FinishReason), JsonValue::String(_) | JsonValue::LongString) => {
                sink.finished += 1;
            }
            _ => {}
        }
    }
}
