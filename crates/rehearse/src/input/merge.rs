//! The requests of all files, merged by time; with `--spread` those of one second spread over it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::InputSettings;
use super::open::OpenLogs;
use super::order::FileOrder;
use super::reading::{FileCounts, FileEnd, InputProgress, LineNote, spawn};
use crate::batch::{KeptRequest, RequestBatch};
use crate::describe::Describer;
use crate::read::FormatName;

const SECOND: u64 = 1_000_000;

/// The next request to decide.
#[derive(Debug)]
pub(crate) struct NextRequest {
    /// When it is decided, in microseconds.
    pub(crate) time: u64,
    pub(crate) batch: Arc<RequestBatch>,
    pub(crate) index: usize,
    /// The time in its line.
    pub(crate) written: u64,
}

impl NextRequest {
    pub(crate) fn kept(&self) -> &KeptRequest {
        &self.batch.requests()[self.index]
    }
}

/// A file, once all of it was read.
pub(crate) struct ReadFile {
    pub(crate) name: String,
    pub(crate) format: FormatName,
    pub(super) end: FileEnd,
}

/// The requests of all files in their order.
pub(crate) struct MergedRequests {
    files: Vec<(String, FormatName, FileOrder)>,
    /// The place of the next request of each file that has one, and the file.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    spread: bool,
    is_strict: bool,
    /// Requests of one second, with their times.
    second: VecDeque<NextRequest>,
    /// Read already, of the second after.
    ahead: Option<(u64, NextRequest)>,
    progress: Arc<InputProgress>,
}

impl MergedRequests {
    /// Begins to read opened logs.
    pub(crate) fn start(
        logs: OpenLogs,
        settings: &Arc<InputSettings>,
        describer: &Describer,
        progress: &Arc<InputProgress>,
    ) -> io::Result<Self> {
        progress
            .size
            .store(logs.size.unwrap_or(0), Ordering::Relaxed);
        let mut files = Vec::with_capacity(logs.logs.len());
        for log in logs.logs {
            let (name, format) = (log.name.clone(), log.reader.format);
            let receiver = spawn(log, settings, describer, progress)?;
            let order = FileOrder::new(receiver, settings.reorder.get(), Arc::clone(progress));
            files.push((name, format, order));
        }
        let mut merged = Self {
            files,
            next: BinaryHeap::new(),
            spread: settings.spread,
            is_strict: settings.strict,
            second: VecDeque::new(),
            ahead: None,
            progress: Arc::clone(progress),
        };
        for index in 0..merged.files.len() {
            merged.look_ahead(index);
        }
        Ok(merged)
    }

    fn look_ahead(&mut self, file: usize) {
        let order = &mut self.files[file].2;
        if let Some(place) = order.next_place() {
            self.next.push(Reverse((place, file)));
        }
        if self.is_strict && order.has_late() {
            self.progress.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The next request by time, and its place.
    fn merged(&mut self) -> Option<(u64, NextRequest)> {
        let Reverse((place, file)) = self.next.pop()?;
        let request = self.files[file].2.take()?;
        self.look_ahead(file);
        let next = NextRequest {
            time: request.time,
            batch: request.batch,
            index: request.index,
            written: request.time,
        };
        Some((place, next))
    }

    /// The next request.
    pub(crate) fn next(&mut self) -> Option<NextRequest> {
        if !self.spread {
            return self.merged().map(|(_, request)| request);
        }
        if self.second.is_empty() {
            self.read_second();
        }
        self.second.pop_front()
    }

    /// Reads all requests of the next second, and spreads those that are not late.
    fn read_second(&mut self) {
        let Some((place, first)) = self.ahead.take().or_else(|| self.merged()) else {
            return;
        };
        let second = place / SECOND;
        self.second.push_back(first);
        while let Some((place, request)) = self.merged() {
            if place / SECOND != second {
                self.ahead = Some((place, request));
                break;
            }
            self.second.push_back(request);
        }
        let is_of_second = |request: &&mut NextRequest| request.time / SECOND == second;
        let count = self.second.iter_mut().filter(is_of_second).count() as u64;
        for (number, request) in (0..).zip(self.second.iter_mut().filter(is_of_second)) {
            let number: u64 = number;
            request.time = second * SECOND + number * SECOND / count;
        }
    }

    /// What the files were, once there are no more requests.
    pub(crate) fn into_files(self) -> Vec<ReadFile> {
        let read = |(name, format, order): (String, FormatName, FileOrder)| ReadFile {
            name,
            format,
            end: order.into_end(),
        };
        self.files.into_iter().map(read).collect()
    }
}

impl ReadFile {
    pub(crate) fn counts(&self) -> &FileCounts {
        &self.end.counts
    }

    /// Lines that are in the format and no requests, without empty ones and the names of columns.
    pub(crate) fn real_ignored(&self) -> u64 {
        let names = u64::from(matches!(self.format, FormatName::Csv | FormatName::Tsv));
        self.end
            .counts
            .ignored
            .saturating_sub(self.end.empty + names)
    }

    pub(crate) fn notes(&self) -> &[LineNote] {
        &self.end.notes
    }

    /// The first line that strict reading refuses.
    pub(crate) fn first_strict(&self) -> Option<&LineNote> {
        self.end.first_strict.as_ref()
    }

    /// Times in an hour that the zone has twice or not at all.
    pub(crate) fn ambiguous(&self) -> u64 {
        self.end.ambiguous
    }

    /// Lines that a recording lost.
    pub(crate) fn lost(&self) -> u64 {
        self.end.lost
    }

    /// The attributes by which a recording has only some of the clients.
    pub(crate) fn sampled_by(&self) -> &[Vec<String>] {
        &self.end.sampled_by
    }

    pub(crate) fn error(&self) -> Option<&io::Error> {
        self.end.error.as_ref()
    }
}
