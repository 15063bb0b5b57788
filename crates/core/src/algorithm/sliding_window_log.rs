//! Sliding window log: the time and cost of every admitted request. Exact, at the price of memory
//! that grows with the entries in the window.
//!
//! Entries hold running totals, so that the usage, and the time at which there is enough room, are found by binary
//! search.

use std::collections::VecDeque;

use super::{AlgorithmVerdict, set_back};
use crate::limit::MAX_COUNT;
use crate::outcome::Outcome;
use crate::time::{Micros, Timestamp};

/// Below this many entries a log's memory is not worth giving back.
const SMALL: usize = 16;

/// The parameters of a log. Made by [`Limit::new`](crate::Limit::new).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingLog {
    count: u64,
    window: Micros,
}

/// The admitted requests of one key, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    entries: VecDeque<LogEntry>,
    /// The running total before the first entry. Totals wrap around; only differences count.
    before: u64,
}

/// The cost admitted at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogEntry {
    at: Timestamp,
    /// The running total of costs, this one included.
    total: u64,
}

/// The part of a log that counts at some instant.
struct Live {
    first: usize,
    before: u64,
    used: u64,
}

impl SlidingLog {
    pub(crate) fn new(count: u64, window: Micros) -> Self {
        Self { count, window }
    }

    /// The number of requests that a window admits.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The window.
    pub fn window(&self) -> Micros {
        self.window
    }

    /// Decides one charge and changes nothing; [`charge`](Self::charge) applies an allowed one.
    pub fn decide(&self, log: &Log, cost: u64, now: Timestamp) -> Outcome {
        let by = set_back(log.changed_at(), now, self.window);
        let at = now.max(log.changed_at() - by);
        let live = log.live(self.window, at, by);

        let verdict = if cost == 0 || live.used.saturating_add(cost) <= self.count {
            AlgorithmVerdict::ALLOWED
        } else if cost > self.count {
            AlgorithmVerdict::NEVER
        } else {
            let excess = live.used - (self.count - cost);
            AlgorithmVerdict::denied_until(log.frees(&live, excess) - by + self.window, now)
        };
        let taken = if verdict.allowed { cost } else { 0 };
        let reset_at = if taken > 0 {
            at + self.window
        } else if live.used > 0 {
            log.changed_at() - by + self.window
        } else {
            now
        };
        verdict.outcome(self.count, live.used.saturating_add(taken), reset_at, at)
    }

    /// Charges `cost`, which was allowed, and removes entries that have left the window.
    pub fn charge(&self, log: &mut Log, cost: u64, now: Timestamp) {
        self.rebase(log, now);
        let at = now.max(log.changed_at());
        let live = log.live(self.window, at, Micros::ZERO);
        log.forget(&live);
        if cost > 0 {
            log.push(at, cost);
        }
    }

    /// Moves the log to the present if its clock has been set back since.
    pub fn rebase(&self, log: &mut Log, now: Timestamp) {
        let by = set_back(log.changed_at(), now, self.window);
        if !by.is_zero() {
            for entry in &mut log.entries {
                entry.at = entry.at - by;
            }
        }
    }

    /// Adds a cost that is known only afterwards, up to the limit.
    pub fn settle(&self, log: &mut Log, cost: u64, now: Timestamp) {
        let room = self.decide(log, 0, now).remaining;
        self.charge(log, cost.min(room), now);
    }

    /// Takes back `cost` from the entry that was made as of `charged_at`, if it is still there.
    pub fn give_back(&self, log: &mut Log, cost: u64, charged_at: Timestamp, now: Timestamp) {
        self.rebase(log, now);
        let index = log.entries.partition_point(|entry| entry.at < charged_at);
        let before = log.total_before(index);
        let Some(entry) = log
            .entries
            .get(index)
            .filter(|entry| entry.at == charged_at)
        else {
            return;
        };
        let own = entry.total.wrapping_sub(before);
        for later in log.entries.range_mut(index..) {
            later.total = later.total.wrapping_sub(cost.min(own));
        }
        if cost >= own {
            log.entries.remove(index);
        }
    }

    /// How much [`give_back`](Self::give_back) takes back of what counts.
    pub fn given_back(&self, log: &Log, cost: u64, charged_at: Timestamp, now: Timestamp) -> u64 {
        let by = set_back(log.changed_at(), now, self.window);
        let at = now.max(log.changed_at() - by);
        let is_before = |entry: &LogEntry| entry.at - by < charged_at;
        let index = log.entries.partition_point(is_before);
        let entry = log.entries.get(index);
        let is_own = |entry: &&LogEntry| entry.at - by == charged_at;
        let counts = at.since(charged_at) < self.window;
        match entry.filter(is_own).filter(|_| counts) {
            Some(entry) => cost.min(entry.total.wrapping_sub(log.total_before(index))),
            None => 0,
        }
    }
}

impl Log {
    /// How many instants it remembers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The memory that it takes next to itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<LogEntry>()
    }

    /// Whether it remembers nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When each entry was made, and its cost, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        let mut before = self.before;
        self.entries.iter().map(move |entry| {
            let cost = entry.total.wrapping_sub(before);
            before = entry.total;
            (entry.at, cost)
        })
    }

    /// Appends an entry. False if it is earlier than the last one, or its cost is out of range.
    pub(crate) fn append(&mut self, at: Timestamp, cost: u64) -> bool {
        let is_possible =
            (1..=MAX_COUNT).contains(&cost) && self.entries.back().is_none_or(|last| last.at <= at);
        if is_possible {
            self.push(at, cost);
        }
        is_possible
    }

    pub(crate) fn changed_at(&self) -> Timestamp {
        self.entries
            .back()
            .map_or(Timestamp::EPOCH, |entry| entry.at)
    }

    fn total_before(&self, index: usize) -> u64 {
        match index.checked_sub(1) {
            Some(earlier) => self.entries[earlier].total,
            None => self.before,
        }
    }

    /// The entries that count at `at`, each moved back `by`. An entry that is exactly `window` old has left.
    fn live(&self, window: Micros, at: Timestamp, by: Micros) -> Live {
        let first = self
            .entries
            .partition_point(|entry| at.since(entry.at - by) >= window);
        let before = self.total_before(first);
        let total = self.entries.back().map_or(before, |entry| entry.total);
        Live {
            first,
            before,
            used: total.wrapping_sub(before),
        }
    }

    /// The time of the entry with whose departure at least `excess` of the usage has left the window.
    fn frees(&self, live: &Live, excess: u64) -> Timestamp {
        let index = self.entries.partition_point(|entry| {
            let freed = entry.total.wrapping_sub(live.before);
            // For entries that have left already, `freed` wraps around to a value above `live.used`.
            freed > live.used || freed < excess
        });
        self.entries
            .get(index)
            .map_or(Timestamp::EPOCH, |entry| entry.at)
    }

    fn forget(&mut self, live: &Live) {
        self.entries.drain(..live.first);
        self.before = live.before;
        let room = self.entries.capacity();
        if room > SMALL && self.entries.len() < room / 4 {
            self.entries.shrink_to((room / 2).max(SMALL));
        }
    }

    fn push(&mut self, at: Timestamp, cost: u64) {
        let total = self.total_before(self.entries.len()).wrapping_add(cost);
        match self.entries.back_mut() {
            Some(last) if last.at == at => last.total = total,
            _ => self.entries.push_back(LogEntry { at, total }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Retry;

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn sliding_window_log_by_hand() {
        let limit = SlidingLog::new(10, Micros::MINUTE);
        let mut log = Log::default();
        limit.charge(&mut log, 4, seconds(100));
        limit.charge(&mut log, 3, seconds(110));
        limit.charge(&mut log, 3, seconds(130));
        let after = |s| Retry::After(Micros::from_seconds(s));
        #[rustfmt::skip]
        let table = [
            // name                              cost at   allowed left retry         reset
            ("full",                             1,   130, false,  0,   after(30),    190),
            ("the oldest frees 4",               4,   130, false,  0,   after(30),    190),
            ("5 need the second to leave too",   5,   130, false,  0,   after(40),    190),
            ("10 need all to leave",             10,  130, false,  0,   after(60),    190),
            ("a window later it has left",       4,   160, true,   0,   Retry::Now,   220),
            ("and not a second sooner",          1,   159, false,  0,   after(1),     190),
            ("all gone",                         10,  190, true,   0,   Retry::Now,   250),
            ("never more than the limit",        11,  190, false,  10,  Retry::Never, 190),
            ("whole since a while",              0,   200, true,   10,  Retry::Now,   200),
        ];
        for (name, cost, at, allowed, left, retry, reset) in table {
            let got = limit.decide(&log, cost, seconds(at));
            let wanted = (allowed, left, retry, seconds(reset));
            assert_eq!(
                (got.allowed, got.remaining, got.retry, got.reset_at),
                wanted,
                "{name}"
            );
        }
    }

    #[test]
    fn a_million_at_once_is_one_entry() {
        let limit = SlidingLog::new(1_000_000, Micros::MINUTE);
        let mut log = Log::default();
        limit.charge(&mut log, 1_000_000, seconds(100));
        assert_eq!(log.len(), 1);
    }

    #[test]
    fn memory_follows_the_entries_in_the_window() {
        let limit = SlidingLog::new(1_000_000, Micros::SECOND);
        let mut log = Log::default();
        for micros in 0..10_000 {
            limit.charge(&mut log, 1, Timestamp::from_micros(micros));
        }
        assert_eq!(log.len(), 10_000);
        for second in 2..40 {
            limit.charge(&mut log, 1, seconds(second));
        }
        assert_eq!(log.len(), 1);
        assert!(
            log.entries.capacity() <= 4 * SMALL,
            "{} entries of room",
            log.entries.capacity()
        );
    }

    #[test]
    fn give_back_takes_one_entry_out_of_the_middle() {
        let limit = SlidingLog::new(10, Micros::MINUTE);
        let mut log = Log::default();
        for (at, cost) in [(100, 4), (110, 3), (130, 3)] {
            limit.charge(&mut log, cost, seconds(at));
        }
        limit.give_back(&mut log, 3, seconds(110), seconds(131));
        limit.give_back(&mut log, 3, seconds(111), seconds(131));
        assert_eq!(
            (log.len(), limit.decide(&log, 0, seconds(131)).remaining),
            (2, 3)
        );
        limit.give_back(&mut log, 1, seconds(100), seconds(131));
        assert_eq!(
            (log.len(), limit.decide(&log, 0, seconds(131)).remaining),
            (2, 4)
        );
        assert_eq!(limit.decide(&log, 0, seconds(160)).remaining, 7);
    }

    #[test]
    fn a_log_says_what_it_was_made_of_and_holds() {
        let limit = SlidingLog::new(10, Micros::MINUTE);
        assert_eq!((limit.count(), limit.window()), (10, Micros::MINUTE));
        let mut log = Log::default();
        assert!(log.is_empty());
        limit.charge(&mut log, 4, seconds(100));
        limit.charge(&mut log, 0, seconds(101));
        assert!(!log.is_empty());
        limit.charge(&mut log, 2, seconds(100));
        limit.charge(&mut log, 3, seconds(110));
        let entries: Vec<_> = log.iter().collect();
        assert_eq!(entries, [(seconds(100), 6), (seconds(110), 3)]);
    }

    #[test]
    fn only_what_could_have_been_charged_is_appended() {
        let mut log = Log::default();
        assert!(!log.append(seconds(100), 0), "no entry costs nothing");
        assert!(!log.append(seconds(100), MAX_COUNT + 1), "nor that much");
        assert!(log.append(seconds(100), MAX_COUNT));
        assert!(log.append(seconds(100), 1), "the same instant");
        assert!(!log.append(seconds(99), 1), "an earlier one");
        assert_eq!(log.len(), 1);
    }

    #[test]
    fn an_entry_that_had_left_stays_away_when_the_clock_is_set_back() {
        let limit = SlidingLog::new(10, Micros::MINUTE);
        let mut log = Log::default();
        assert!(log.append(seconds(900), 4) && log.append(seconds(1_000), 3));
        assert_eq!(limit.decide(&log, 0, seconds(100)).remaining, 7);
    }

    #[test]
    fn what_is_settled_fits_into_the_limit() {
        let limit = SlidingLog::new(10, Micros::MINUTE);
        for (cost, left) in [(1, 5), (6, 0), (99, 0)] {
            let mut log = Log::default();
            limit.charge(&mut log, 4, seconds(100));
            limit.settle(&mut log, cost, seconds(110));
            assert_eq!(
                limit.decide(&log, 0, seconds(110)).remaining,
                left,
                "{cost}"
            );
        }
    }

    #[test]
    fn a_log_of_a_clock_that_was_set_back_is_moved_to_now_with_its_usage() {
        let limit = SlidingLog::new(10, Micros::MINUTE);
        let mut log = Log::default();
        limit.charge(&mut log, 4, seconds(990));
        limit.charge(&mut log, 3, seconds(1_000));
        let after = |s| Retry::After(Micros::from_seconds(s));
        let got = limit.decide(&log, 4, seconds(100));
        assert_eq!(
            (got.retry, got.remaining, got.at),
            (after(50), 3, seconds(100))
        );
        assert_eq!(got.reset_at, seconds(160));
        limit.rebase(&mut log, seconds(100));
        let entries: Vec<_> = log.iter().collect();
        assert_eq!(entries, [(seconds(90), 4), (seconds(100), 3)]);
        limit.rebase(&mut log, seconds(100));
        assert_eq!(log.iter().next(), Some((seconds(90), 4)), "once");
        limit.give_back(&mut log, 4, seconds(90), seconds(101));
        assert_eq!(limit.decide(&log, 0, seconds(101)).remaining, 7);
    }
}
