//! The requests of one file in the order of their times, as far as `--reorder` allows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use super::open::PATIENCE;
use super::reading::{FileCounts, FileEnd, FromFile, InputProgress, LineNote, LineNoteKind};
use crate::batch::RequestBatch;

/// How many requests of a file are held at most.
const MOST_HELD: usize = 200_000;
/// How many late lines are listed.
const LISTED: usize = 10;

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    /// Its place among others: its time, unless it is late.
    pub(super) place: u64,
    pub(super) time: u64,
    pub(super) batch: Arc<RequestBatch>,
    pub(super) index: usize,
}

/// The requests of one file.
pub(super) struct FileOrder {
    receiver: Receiver<FromFile>,
    reorder: u64,
    waiting: VecDeque<WaitingRequest>,
    /// The latest time that was read.
    newest: u64,
    /// The place of the last one that was taken.
    taken: u64,
    /// Once the file was read.
    end: Option<Box<FileEnd>>,
    late: Vec<LineNote>,
    late_count: u64,
    /// What became of the lines up to the last batch.
    counts: FileCounts,
    progress: Arc<InputProgress>,
}

impl FileOrder {
    pub(super) fn new(
        receiver: Receiver<FromFile>,
        reorder: u64,
        progress: Arc<InputProgress>,
    ) -> Self {
        Self {
            receiver,
            reorder,
            waiting: VecDeque::new(),
            newest: 0,
            taken: 0,
            end: None,
            late: Vec::new(),
            late_count: 0,
            counts: FileCounts::default(),
            progress,
        }
    }

    /// The place of the next request; none at the end. Waits until no earlier one can come.
    pub(super) fn next_place(&mut self) -> Option<u64> {
        loop {
            if let Some(first) = self.waiting.front()
                && (self.end.is_some()
                    || first.place <= self.newest.saturating_sub(self.reorder)
                    || self.waiting.len() > MOST_HELD)
            {
                return Some(first.place);
            }
            if self.end.is_some() {
                return None;
            }
            match self.receiver.recv_timeout(PATIENCE) {
                Ok(FromFile::Requests(batch, counts)) => {
                    self.counts = counts;
                    self.absorb(batch);
                }
                Ok(FromFile::End(end)) => self.end = Some(end),
                // It waits for a pipe that has no writer any more.
                Err(RecvTimeoutError::Timeout) if !self.progress.stop.load(Ordering::Relaxed) => {}
                Err(_) => {
                    let counts = self.counts;
                    self.end = Some(Box::new(FileEnd {
                        counts,
                        ..FileEnd::default()
                    }));
                }
            }
        }
    }

    pub(super) fn take(&mut self) -> Option<WaitingRequest> {
        let request = self.waiting.pop_front()?;
        self.taken = request.place;
        Some(request)
    }

    fn absorb(&mut self, batch: RequestBatch) {
        let batch = Arc::new(batch);
        for (index, request) in batch.requests().iter().enumerate() {
            self.newest = self.newest.max(request.newest_before);
            let earliest = self.newest.saturating_sub(self.reorder);
            // Of a file that held too many, a line may come too late although it is within `--reorder`.
            let place = request.time.max(earliest).max(self.taken);
            if place > request.time {
                self.late_count += 1;
                if self.late.len() < LISTED {
                    self.late.push(LineNote {
                        line: request.line,
                        kind: LineNoteKind::Late,
                        reason: "it is earlier than lines before it by more than `--reorder`"
                            .to_owned(),
                        text: Vec::new(),
                    });
                }
            }
            self.newest = self.newest.max(request.time);
            let waiting = WaitingRequest {
                place,
                time: request.time,
                batch: Arc::clone(&batch),
                index,
            };
            if self.waiting.back().is_none_or(|last| last.place <= place) {
                self.waiting.push_back(waiting);
            } else {
                let at = self.waiting.partition_point(|other| other.place <= place);
                self.waiting.insert(at, waiting);
            }
        }
    }

    /// Whether a late line was read.
    pub(super) fn has_late(&self) -> bool {
        self.late_count > 0
    }

    /// What the file was, with its late lines.
    pub(super) fn into_end(mut self) -> FileEnd {
        let mut end = self.end.take().map(|end| *end).unwrap_or_default();
        end.counts.late = self.late_count;
        let strict = end
            .first_strict
            .into_iter()
            .chain(self.late.first().cloned());
        end.first_strict = strict.min_by_key(|note| note.line);
        end.notes.append(&mut self.late);
        end.notes.sort_by_key(|note| note.line);
        end.notes.truncate(LISTED);
        end
    }
}
