//! The last minute and the last hour of keys: summaries of periods that are over.

use std::collections::VecDeque;

use crate::budget::MemoryBudget;
use crate::summary::KeySummary;
use crate::top::KeyWindow;

/// The length of the periods of a window in seconds, and how many there are with the current one.
struct Periods {
    length: u64,
    count: u64,
}

const MINUTE: Periods = Periods {
    length: 10,
    count: 6,
};
const HOUR: Periods = Periods {
    length: 300,
    count: 12,
};

impl Periods {
    /// The number of the first period of the window.
    fn first(&self, now: u64) -> u64 {
        (now / self.length).saturating_sub(self.count - 1)
    }
}

impl KeyWindow {
    fn periods(self) -> Periods {
        match self {
            Self::Minute => MINUTE,
            Self::Hour => HOUR,
        }
    }

    /// The beginning of the window, in Unix seconds: its last period has not ended yet.
    pub fn from(self, now: u64) -> u64 {
        let periods = self.periods();
        periods.first(now) * periods.length
    }
}

/// The number of the period at a time. When it changes, tables become summaries.
pub(crate) fn period_at(now: u64) -> u64 {
    now / MINUTE.length
}

/// The beginning of a period.
pub(crate) fn start_of(period: u64) -> u64 {
    period * MINUTE.length
}

/// Summaries with the numbers of their periods, the oldest first.
type Ring = VecDeque<(u64, KeySummary)>;

/// The summaries of one sort.
#[derive(Debug, Default)]
pub(crate) struct KeyWindows {
    minute: Ring,
    /// The last entry accumulates the finished part of the current period.
    hour: Ring,
}

impl KeyWindows {
    /// Adds the summary of a period that began at `start`.
    pub(crate) fn add(
        &mut self,
        start: u64,
        summary: KeySummary,
        counts_distinct: bool,
        budget: &MemoryBudget,
    ) {
        let number = start / HOUR.length;
        let sum = match self.hour.pop_back() {
            Some((last, sum)) if last == number => {
                budget.give(sum.bytes());
                KeySummary::merged([&sum, &summary].into_iter()).cut(counts_distinct)
            }
            other => {
                self.hour.extend(other);
                summary.clone()
            }
        };
        self.hour.push_back((number, within(budget, sum)));
        let number = start / MINUTE.length;
        self.minute.push_back((number, within(budget, summary)));
    }

    /// Drops periods that are older than the windows.
    pub(crate) fn expire(&mut self, now: u64, budget: &MemoryBudget) {
        for (ring, periods) in [(&mut self.minute, MINUTE), (&mut self.hour, HOUR)] {
            let first = periods.first(now);
            // After a clock was set back, also periods in the future.
            let last = now / periods.length;
            ring.retain(|(number, summary)| {
                let is_kept = (first..=last).contains(number);
                if !is_kept {
                    budget.give(summary.bytes());
                }
                is_kept
            });
        }
    }

    /// The summaries of a window.
    pub(crate) fn parts(
        &self,
        window: KeyWindow,
        now: u64,
    ) -> impl Iterator<Item = &KeySummary> + Clone {
        let ring = match window {
            KeyWindow::Minute => &self.minute,
            KeyWindow::Hour => &self.hour,
        };
        let first = window.periods().first(now);
        let current = ring.iter().filter(move |(number, _)| *number >= first);
        current.map(|(_, summary)| summary)
    }

    /// Whether any summary lists a key.
    pub(crate) fn has(&self, hash: u64) -> bool {
        let mut all = self.minute.iter().chain(&self.hour);
        all.any(|(_, summary)| summary.get(hash).is_some())
    }
}

/// The summary, without its keys if there is no memory for them.
fn within(budget: &MemoryBudget, summary: KeySummary) -> KeySummary {
    if budget.take(summary.bytes()) {
        return summary;
    }
    summary.without_keys()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::KeyCount;

    fn one_key(count: u64) -> KeySummary {
        let key = KeyCount {
            hash: 1,
            lower: count,
            upper: count,
        };
        KeySummary::new(vec![key], 0, count, None)
    }

    fn count(windows: &KeyWindows, window: KeyWindow, now: u64) -> u64 {
        KeySummary::merged(windows.parts(window, now))
            .get(1)
            .map_or(0, |key| key.lower)
    }

    #[test]
    fn a_period_leaves_the_minute_after_a_minute_and_the_hour_after_an_hour() {
        let budget = MemoryBudget::new(1 << 20);
        let mut windows = KeyWindows::default();
        windows.add(3_000, one_key(1), true, &budget);
        windows.add(3_010, one_key(2), true, &budget);
        windows.add(3_300, one_key(4), true, &budget);
        #[rustfmt::skip]
        let table = [
            (3_059, 3 + 4, 7), (3_060, 2 + 4, 7), (3_070, 4, 7), (3_359, 4, 7), (3_360, 0, 7),
            (6_599, 0, 7), (6_600, 0, 4), (6_899, 0, 4), (6_900, 0, 0),
        ];
        for (now, minute, hour) in table {
            assert_eq!(count(&windows, KeyWindow::Minute, now), minute, "{now}");
            assert_eq!(count(&windows, KeyWindow::Hour, now), hour, "{now}");
        }
        assert_eq!(KeyWindow::Minute.from(3_059), 3_000);
        assert_eq!(KeyWindow::Hour.from(6_599), 3_000);
        assert!(windows.has(1));
        windows.expire(6_900, &budget);
        assert_eq!(budget.used(), 0);
        assert!(!windows.has(1));
    }

    #[test]
    fn without_memory_a_summary_lists_no_keys_and_says_what_they_may_have_had() {
        let budget = MemoryBudget::new(0);
        let mut windows = KeyWindows::default();
        windows.add(0, one_key(5), true, &budget);
        let sum = KeySummary::merged(windows.parts(KeyWindow::Minute, 5));
        assert_eq!((sum.keys.len(), sum.error, sum.weight), (0, 5, 5));
    }
}
