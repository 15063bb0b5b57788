//! The thread that writes lines to the file. After an error it goes on: a disk may have room again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tracing::dispatcher;

use super::file::RecordFile;
use super::queue::{LineBatch, Mark, RecordQueue};
use crate::config::RecordSettings;

/// What became of the lines so far.
#[derive(Debug, Default)]
pub(super) struct RecordState {
    lines: AtomicU64,
    lost: AtomicU64,
    problem: Mutex<Option<String>>,
}

impl RecordState {
    /// Counts lines that are not recorded.
    pub(super) fn lose(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// How many lines were written.
    pub(super) fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// How many were not.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Why the last lines could not be written.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Logs the first failure, and the end of it.
    fn note(&self, written: io::Result<()>) {
        let mut problem = self.problem.lock();
        match written {
            Ok(()) => {
                if problem.take().is_some() {
                    tracing::info!("decisions are recorded again");
                }
            }
            Err(error) => {
                if problem.replace(error.to_string()).is_none() {
                    tracing::error!("decisions cannot be recorded: {error}");
                }
            }
        }
    }
}

/// Writes what is queued.
pub(super) struct RecordWriter {
    file: RecordFile,
    queue: Arc<RecordQueue>,
    state: Arc<RecordState>,
}

impl RecordWriter {
    /// Starts the thread, which ends when the queue is closed.
    pub(super) fn start(
        settings: &RecordSettings,
        queue: Arc<RecordQueue>,
        state: Arc<RecordState>,
    ) -> io::Result<()> {
        let writer = Self {
            file: RecordFile::new(settings),
            queue,
            state,
        };
        let logs = dispatcher::get_default(Clone::clone);
        let run = move || dispatcher::with_default(&logs, || writer.run());
        let thread = std::thread::Builder::new().name("record".to_owned());
        thread.spawn(run).map(drop)
    }

    fn run(mut self) {
        let mut empty = LineBatch::new();
        while let Some(mut batch) = self.queue.take(empty) {
            let written = self.write(&batch.lines, std::mem::take(&mut batch.marks));
            self.state.note(written);
            batch.lines.clear();
            empty = batch;
        }
        drop(self.file);
        self.queue.end();
    }

    /// Writes all lines and marks. The first error, if there are any: each is tried.
    fn write(&mut self, lines: &[u8], marks: Vec<(usize, Mark)>) -> io::Result<()> {
        let mut result = Ok(());
        let mut begin = 0;
        for (end, mark) in marks {
            result = result.and(self.write_lines(&lines[begin..end]));
            begin = end;
            result = result.and(match mark {
                Mark::Rules(header) => self.file.put_under(header),
                Mark::Lost(lost) => {
                    self.file.lose(lost);
                    Ok(())
                }
                Mark::Reopen => self.file.reopen(),
            });
        }
        result = result.and(self.write_lines(&lines[begin..]));
        result.and(self.file.mark_gap())
    }

    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        let count = |lines: &[u8]| lines.iter().map(|byte| u64::from(*byte == b'\n')).sum();
        let (written, result) = self.file.append(lines);
        self.state
            .lines
            .fetch_add(count(&lines[..written]), Ordering::Relaxed);
        let lost = count(&lines[written..]);
        self.state.lose(lost);
        self.file.lose(lost);
        result
    }
}
