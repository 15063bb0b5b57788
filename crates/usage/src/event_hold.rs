//! Holds an event back until it is whole, where it may have to be left out of a stream.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::answer::PassedBytes;

/// The most bytes that are held. With everything else that is kept of an answer, this is below 64 KiB.
const MOST_HELD: usize = 63 * 1_024;

/// The event that has begun, and what became of the last one.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventHold {
    held: Vec<u8>,
    /// Whether the event passes on as it comes: it is too long, or known not to be left out.
    is_passing: bool,
    /// Whether the last event was left out.
    was_left_out: bool,
}

/// One piece of a stream, while it is split.
pub(crate) struct EventPass<'h> {
    hold: &'h mut EventHold,
    /// What is left out of the piece.
    left_out: SmallVec<[Range<usize>; 2]>,
    /// Where the current event begins in the piece, if it begins there.
    begin: usize,
    /// Whether what was held is left out; `None` until its event has ended.
    held_is_left_out: Option<bool>,
}

impl EventHold {
    pub(crate) fn begin(&mut self) -> EventPass<'_> {
        EventPass {
            hold: self,
            left_out: SmallVec::new(),
            begin: 0,
            held_is_left_out: None,
        }
    }

    /// At the end of the stream: what is still held, unless it is left out.
    pub(crate) fn finish(&mut self, is_extra: bool) -> Option<Bytes> {
        let held = Bytes::from(std::mem::take(&mut self.held));
        (!held.is_empty() && !is_extra).then_some(held)
    }
}

impl EventPass<'_> {
    /// The event that ends in front of an index.
    pub(crate) fn end(&mut self, at: usize, is_extra: bool) {
        let is_left_out = is_extra && !self.hold.is_passing;
        self.held_is_left_out.get_or_insert(is_left_out);
        if is_left_out {
            self.left_out.push(self.begin..at);
        }
        self.begin = at;
        self.hold.is_passing = false;
        self.hold.was_left_out = is_left_out;
    }

    /// A byte that belongs to the end of the last event.
    pub(crate) fn line_feed(&mut self, at: usize) {
        if self.hold.was_left_out {
            self.left_out.push(at..at + 1);
        }
        self.begin = at + 1;
    }

    /// The bytes that pass on. `may_be_extra` is about the event that the piece leaves unfinished.
    pub(crate) fn pass(self, piece: Bytes, may_be_extra: bool) -> PassedBytes {
        let Self {
            hold,
            left_out,
            begin,
            held_is_left_out,
        } = self;
        let mut passed = PassedBytes::new();
        match held_is_left_out {
            Some(true) => hold.held.clear(),
            Some(false) => hold.release(&mut passed),
            None => {}
        }
        if left_out.is_empty() && begin == piece.len() {
            hold.is_passing |= !may_be_extra;
            add(&mut passed, piece);
            return passed;
        }
        let mut from = 0;
        for range in left_out {
            add(&mut passed, piece.slice(from..range.start));
            from = range.end;
        }
        add(&mut passed, piece.slice(from..begin));
        let rest = piece.slice(begin..);
        hold.is_passing |= !may_be_extra || hold.held.len() + rest.len() > MOST_HELD;
        if hold.is_passing {
            hold.release(&mut passed);
            add(&mut passed, rest);
        } else {
            hold.keep(&rest);
        }
        passed
    }
}

impl EventHold {
    /// Keeps more of an event. The memory doubles, and is never more than may be held.
    fn keep(&mut self, bytes: &[u8]) {
        let needed = self.held.len() + bytes.len();
        if needed > self.held.capacity() {
            let room = needed.max(self.held.capacity() * 2).min(MOST_HELD);
            self.held.reserve_exact(room - self.held.len());
        }
        self.held.extend_from_slice(bytes);
    }

    fn release(&mut self, passed: &mut PassedBytes) {
        add(passed, Bytes::from(std::mem::take(&mut self.held)));
    }
}

fn add(passed: &mut PassedBytes, bytes: Bytes) {
    if !bytes.is_empty() {
        passed.push(bytes);
    }
}
