//! When this server, and those that ran before it in the same data directory, counted: without it a gap looks like a
//! time without requests.

use crate::record::{put, take};
use crate::series::{MINUTES, SET_BACK, SeriesSpan};

/// Spans that are this close are one, in seconds: a counter that is read late leaves no gap.
const CLOSE: u64 = 2;

/// The most spans. Beyond it, the shortest gaps are forgotten.
const MOST_SPANS: usize = 64;

/// How old spans may be, in seconds.
const LASTS: u64 = (MINUTES + 1) * 60;

/// Spans of Unix seconds, each without its end, in rising order and apart from each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage(Vec<(u64, u64)>);

impl Coverage {
    /// Adds the time from `since`, when counters were last read, to the end of the second `now`. A clock that is set
    /// back by far forgets what is later than now, as series do.
    pub(crate) fn note(&mut self, since: u64, now: u64) {
        let end = now.saturating_add(1);
        let last = self.0.last().map_or(0, |(_, end)| *end);
        if end.saturating_add(SET_BACK) < last {
            self.cut(end);
        }
        // A process that did not read its counters for so long was stopped.
        let from = if now.saturating_sub(since) > SET_BACK {
            now
        } else {
            since.min(now)
        };
        self.add(from, end);
        let first = end.saturating_sub(LASTS);
        self.0.retain(|(_, end)| *end > first);
    }

    /// Forgets what is not before `end`.
    fn cut(&mut self, end: u64) {
        self.0.retain(|(from, _)| *from < end);
        if let Some(last) = self.0.last_mut() {
            last.1 = last.1.min(end);
        }
    }

    fn add(&mut self, from: u64, to: u64) {
        if from < to {
            self.0.push((from, to));
            self.join();
        }
    }

    /// Adds the spans of others.
    pub fn extend<'c>(&mut self, others: impl Iterator<Item = &'c Self>) {
        self.0.extend(others.flat_map(|other| &other.0));
        self.join();
    }

    /// Adds what was kept, as far as it is before `now` and not too old.
    pub(crate) fn restore(&mut self, kept: &Self, now: u64) {
        let mut kept = kept.clone();
        kept.cut(now);
        kept.0.retain(|(_, end)| *end > now.saturating_sub(LASTS));
        self.extend([&kept].into_iter());
    }

    /// Restores the order, and joins spans that are close or too many.
    fn join(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by(|next, one| {
            let is_close = next.0 <= one.1.saturating_add(CLOSE);
            if is_close {
                one.1 = one.1.max(next.1);
            }
            is_close
        });
        while self.0.len() > MOST_SPANS {
            let gap = |at: &usize| self.0[*at].0 - self.0[at - 1].1;
            let Some(at) = (1..self.0.len()).min_by_key(gap) else {
                break;
            };
            self.0[at - 1].1 = self.0[at].1;
            self.0.remove(at);
        }
    }

    /// The spans between `span.from` and `now` in which nothing was counted, each without its end.
    pub fn gaps(&self, span: &SeriesSpan, now: u64) -> Vec<(u64, u64)> {
        let end = span.from.saturating_add(span.count * span.step);
        let end = end.min(now.saturating_add(1));
        let mut gaps = Vec::new();
        let mut at = span.from;
        for (from, to) in self.0.iter().copied().chain([(end, end)]) {
            if at < from.min(end) {
                gaps.push((at, from.min(end)));
            }
            at = at.max(to);
        }
        gaps
    }

    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.0.len() as u64);
        let mut last = 0;
        for (from, to) in &self.0 {
            put(bytes, from - last);
            put(bytes, to - from);
            last = *to;
        }
    }

    pub(crate) fn take(bytes: &mut impl Iterator<Item = u8>) -> Option<Self> {
        let count = take(bytes).filter(|count| *count <= MOST_SPANS as u64)?;
        let mut coverage = Self::default();
        let mut last = 0_u64;
        for _ in 0..count {
            let from = last.checked_add(take(bytes)?)?;
            last = from.checked_add(take(bytes)?)?;
            coverage.0.push((from, last));
        }
        coverage.join();
        Some(coverage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(spans: &[(u64, u64)]) -> Coverage {
        Coverage(spans.to_vec())
    }

    #[test]
    fn time_that_is_not_covered_is_a_gap() {
        let coverage = covered(&[(100, 110), (120, 130)]);
        let span = |from, count| SeriesSpan {
            from,
            step: 1,
            count,
        };
        #[rustfmt::skip]
        let table: [(_, _, u64, &[(u64, u64)]); 7] = [
            (90, 60, 129, &[(90, 100), (110, 120)]),
            (100, 60, 129, &[(110, 120)]),
            (105, 60, 140, &[(110, 120), (130, 141)]),
            (115, 10, 140, &[(115, 120)]),
            (121, 5, 140, &[]),
            (130, 5, 140, &[(130, 135)]),
            (200, 5, 140, &[]),
        ];
        for (from, count, now, gaps) in table {
            assert_eq!(coverage.gaps(&span(from, count), now), gaps, "{from}");
        }
        assert_eq!(Coverage::default().gaps(&span(5, 10), 9), [(5, 10)]);
        let mut all = coverage.clone();
        all.extend([&covered(&[(108, 118)]), &covered(&[(131, 140)])].into_iter());
        assert_eq!(all, covered(&[(100, 140)]), "close enough");
    }

    #[test]
    fn a_process_covers_the_time_in_which_it_reads_its_counters() {
        let mut coverage = Coverage::default();
        for (since, now) in [
            (1_000, 1_001),
            (1_001, 1_002),
            (1_002, 1_040),
            (1_040, 1_040),
        ] {
            coverage.note(since, now);
        }
        assert_eq!(coverage, covered(&[(1_000, 1_041)]));
        // It was stopped for some minutes.
        coverage.note(1_040, 1_500);
        assert_eq!(coverage, covered(&[(1_000, 1_041), (1_500, 1_501)]));
        // A clock was set back by far: what is later did not happen.
        coverage.note(1_020, 1_020);
        assert_eq!(coverage, covered(&[(1_000, 1_021)]));
        // A day later it is too old.
        coverage.note(90_000, 90_000);
        assert_eq!(coverage, covered(&[(90_000, 90_001)]));
    }

    #[test]
    fn what_was_kept_by_a_clock_that_is_ahead_is_cut() {
        let mut coverage = covered(&[(5_000, 5_001)]);
        coverage.restore(&covered(&[(1_000, 2_000), (4_000, 9_000)]), 5_000);
        assert_eq!(coverage, covered(&[(1_000, 2_000), (4_000, 5_001)]));
        let mut coverage = Coverage::default();
        coverage.restore(&covered(&[(1_000, 2_000), (95_000, 96_000)]), 100_000);
        assert_eq!(coverage, covered(&[(95_000, 96_000)]));
    }

    #[test]
    fn the_shortest_gaps_are_forgotten_if_there_are_too_many() {
        let mut coverage = Coverage::default();
        for number in 0..200 {
            let from = 1_000 + 100 * number;
            // Every 50th gap is long.
            let length = if number % 50 == 49 { 20 } else { 90 };
            coverage.add(from, from + length);
        }
        assert_eq!(coverage.0.len(), MOST_SPANS);
        let gaps = coverage.0.windows(2).map(|pair| pair[1].0 - pair[0].1);
        assert_eq!(gaps.filter(|gap| *gap == 80).count(), 3);
        assert_eq!((coverage.0[0].0, coverage.0[63].1), (1_000, 20_920));
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let coverage = covered(&[
            (1_800_000_000, 1_800_000_100),
            (1_800_000_200, 1_800_003_000),
        ]);
        let mut bytes = Vec::new();
        coverage.put(&mut bytes);
        let read = |bytes: &[u8]| Coverage::take(&mut bytes.iter().copied());
        assert_eq!(read(&bytes), Some(coverage));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), None);
        }
        assert_eq!(read(&[65]), None);
        // Empty spans, and numbers that are too large.
        assert_eq!(read(&[2, 5, 0, 0, 0]), Some(covered(&[(5, 5)])));
        let huge = [&[2, 1, 1][..], &[0xff; 9], &[1, 1]].concat();
        assert_eq!(read(&huge), None);
    }
}
