//! The lines that wait to be written, in their order, and marks between them. Its size is bounded: when it is full,
//! lines are dropped until the writer has taken it, so that one mark stands for the gap.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidegate_codec::record::{LONGEST_LINE, RecordHeader};

/// How many bytes may wait. As many again may be in the hands of the writer.
const CAPACITY: usize = 8 << 20;
/// Beyond this the writer is woken before its time.
const URGENT: usize = CAPACITY / 4;
/// How long the writer lets lines gather, so that a busy server writes many at a time.
const GATHER: Duration = Duration::from_millis(20);

/// Something between two lines.
#[derive(Debug)]
pub(super) enum Mark {
    /// Other rules are in force. The header of a file that begins with the next line.
    Rules(Arc<RecordHeader>),
    /// So many lines are missing.
    Lost(u64),
    /// The file is to be opened anew.
    Reopen,
}

/// Lines, and the marks between them by the number of bytes before each.
#[derive(Debug, Default)]
pub(super) struct LineBatch {
    pub(super) lines: Vec<u8>,
    pub(super) marks: Vec<(usize, Mark)>,
}

/// What waits, and what is wanted of the writer.
#[derive(Debug, Default)]
struct Pending {
    batch: LineBatch,
    /// The lines that found no room.
    dropped: u64,
    is_closed: bool,
    /// The writer has ended.
    has_ended: bool,
}

/// The queue between deciding threads and the writer.
#[derive(Debug)]
pub(super) struct RecordQueue {
    pending: Mutex<Pending>,
    /// Wakes the writer.
    filled: Condvar,
    ended: Condvar,
}

impl LineBatch {
    /// One with room for all lines that may wait, so that no decision copies those of others. The memory is taken
    /// from the system as it is used.
    pub(super) fn new() -> Self {
        Self {
            lines: Vec::with_capacity(CAPACITY),
            marks: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.marks.is_empty()
    }
}

impl RecordQueue {
    pub(super) fn new() -> Self {
        Self {
            pending: Mutex::new(Pending {
                batch: LineBatch::new(),
                ..Pending::default()
            }),
            filled: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// Adds a line. False if it is dropped.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut pending = self.pending.lock();
        if pending.is_closed {
            return false;
        }
        let before = pending.batch.lines.len();
        let is_full = before + line.len() > CAPACITY || line.len() > LONGEST_LINE;
        if is_full || pending.dropped > 0 {
            pending.dropped += 1;
            return false;
        }
        let was_empty = pending.batch.is_empty();
        pending.batch.lines.extend_from_slice(line);
        let is_urgent = (before..before + line.len()).contains(&URGENT);
        drop(pending);
        if was_empty || is_urgent {
            self.filled.notify_one();
        }
        true
    }

    /// Adds a mark after the lines so far.
    pub(super) fn mark(&self, mark: Mark) {
        let mut pending = self.pending.lock();
        let before = pending.batch.lines.len();
        pending.batch.marks.push((before, mark));
        drop(pending);
        self.filled.notify_one();
    }

    /// Takes what waits, in exchange for an empty batch; waits until there is something. None once the queue is closed
    /// and empty.
    pub(super) fn take(&self, empty: LineBatch) -> Option<LineBatch> {
        let mut pending = self.pending.lock();
        while pending.batch.is_empty() && pending.dropped == 0 {
            if pending.is_closed {
                return None;
            }
            self.filled.wait(&mut pending);
        }
        if !pending.is_closed && pending.batch.lines.len() < URGENT {
            self.filled.wait_for(&mut pending, GATHER);
        }
        let mut batch = std::mem::replace(&mut pending.batch, empty);
        let dropped = std::mem::take(&mut pending.dropped);
        if dropped > 0 {
            let before = batch.lines.len();
            batch.marks.push((before, Mark::Lost(dropped)));
        }
        Some(batch)
    }

    /// The writer has ended.
    pub(super) fn end(&self) {
        self.pending.lock().has_ended = true;
        self.ended.notify_all();
    }

    /// Accepts no more lines, and waits for the writer to end, but no longer than `patience`.
    pub(super) fn close(&self, patience: Duration) {
        let mut pending = self.pending.lock();
        pending.is_closed = true;
        self.filled.notify_one();
        let is_open = |pending: &mut Pending| !pending.has_ended;
        self.ended.wait_while_for(&mut pending, is_open, patience);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_lines_and_marks_one_gap_at_its_place() {
        let queue = RecordQueue::new();
        let long = vec![b'x'; CAPACITY / 16];
        let kept = (0..20).filter(|_| queue.push(&long)).count();
        assert_eq!(kept, 16);
        // A short one would have room, but comes after the gap.
        assert!(!queue.push(b"short\n"));
        queue.mark(Mark::Reopen);
        let batch = queue.take(LineBatch::new()).unwrap();
        assert_eq!(batch.lines.len(), CAPACITY);
        assert!(
            matches!(
                batch.marks[..],
                [(_, Mark::Reopen), (CAPACITY, Mark::Lost(5))]
            ),
            "{:?}",
            batch.marks
        );
        assert!(queue.push(b"short\n"));
        assert!(!queue.push(&vec![b'x'; LONGEST_LINE + 1]));
        let batch = queue.take(LineBatch::new()).unwrap();
        assert!(matches!(batch.marks[..], [(6, Mark::Lost(1))]));
        queue.close(Duration::ZERO);
        assert!(!queue.push(b"late\n"));
        assert!(queue.take(LineBatch::new()).is_none());
    }
}
