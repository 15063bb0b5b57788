//! Counts by second or minute, as `record.rs` writes them.

use std::collections::VecDeque;

use crate::budget::MemoryBudget;
use crate::counts::OutcomeCounts;
use crate::record::{put_record, take, take_record};

/// Counts with the numbers of their seconds or minutes, in rising order.
#[derive(Debug, Default)]
pub(crate) struct SeriesLog {
    bytes: VecDeque<u8>,
    /// The number of the first record.
    first: u64,
    /// The number of the last record.
    last: u64,
    /// The memory that was taken.
    taken: usize,
}

impl SeriesLog {
    /// Adds a record, which must be later than all others.
    pub(crate) fn push(&mut self, number: u64, counts: &OutcomeCounts, budget: &MemoryBudget) {
        if self.bytes.is_empty() {
            (self.first, self.last) = (number, number);
        }
        debug_assert!(number >= self.last, "records are in order");
        let distance = number.saturating_sub(self.last);
        put_record(&mut self.bytes, distance, counts);
        self.last = number;
        self.settle(budget);
    }

    /// Removes the records before a number.
    pub(crate) fn expire(&mut self, before: u64, budget: &MemoryBudget) {
        let is_changed = !self.bytes.is_empty() && self.first < before;
        while !self.bytes.is_empty() && self.first < before {
            let mut rest = self.bytes.iter().copied();
            let left = match take_record(&mut rest) {
                Some(_) => rest.len(),
                None => 0,
            };
            self.bytes.drain(..self.bytes.len() - left);
            let mut rest = self.bytes.iter().copied();
            self.first = self.first.saturating_add(take(&mut rest).unwrap_or(0));
        }
        if is_changed {
            self.settle(budget);
        }
    }

    /// All records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, OutcomeCounts)> {
        let mut rest = self.bytes.iter().copied();
        let mut number = None;
        std::iter::from_fn(move || {
            let (distance, counts) = take_record(&mut rest)?;
            let next = number.map_or(self.first, |number: u64| number.saturating_add(distance));
            number = Some(next);
            Some((next, counts))
        })
    }

    pub(crate) fn clear(&mut self, budget: &MemoryBudget) {
        budget.give(self.taken);
        *self = Self::default();
    }

    /// Takes the memory that the log needs from the budget, or clears the log if the budget is
    /// exhausted.
    fn settle(&mut self, budget: &MemoryBudget) {
        if self.bytes.len() * 4 < self.bytes.capacity() {
            self.bytes.shrink_to(self.bytes.len() * 2);
        }
        let needed = self.bytes.capacity();
        if needed < self.taken {
            budget.give(self.taken - needed);
            self.taken = needed;
        } else if needed > self.taken {
            if budget.take(needed - self.taken) {
                self.taken = needed;
            } else {
                self.clear(budget);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(allowed: u64, denied: u64, cost: u64) -> OutcomeCounts {
        OutcomeCounts {
            allowed,
            denied,
            cost,
            ..OutcomeCounts::default()
        }
    }

    #[test]
    fn records_come_back_as_they_were_until_they_expire() {
        let budget = MemoryBudget::new(1 << 20);
        let mut log = SeriesLog::default();
        let records = [
            (1_700_000_000, counts(1, 0, 1)),
            (1_700_000_001, counts(200, 3, 199)),
            (1_700_000_300, counts(0, 0, 0)),
            (1_700_000_301, counts(u64::MAX, 127, u64::MAX)),
            (1_700_100_000, counts(0, 128, 5)),
        ];
        for (number, counts) in &records {
            log.push(*number, counts, &budget);
        }
        assert_eq!(log.iter().collect::<Vec<_>>(), records);
        for (kept, before) in [
            (5, 0),
            (4, 1_700_000_001),
            (2, 1_700_000_301),
            (1, 1_700_000_302),
        ] {
            log.expire(before, &budget);
            assert_eq!(log.iter().collect::<Vec<_>>(), records[5 - kept..]);
        }
        log.expire(u64::MAX, &budget);
        assert_eq!(log.iter().count(), 0);
        log.push(7, &counts(1, 1, 1), &budget);
        assert_eq!(log.iter().collect::<Vec<_>>(), [(7, counts(1, 1, 1))]);
        log.clear(&budget);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_day_of_minutes_takes_few_bytes() {
        let budget = MemoryBudget::new(1 << 20);
        let mut log = SeriesLog::default();
        for minute in 0..10_000 {
            log.push(
                minute,
                &counts(15_000 + minute, minute % 100, 15_000 + minute),
                &budget,
            );
            log.expire(minute.saturating_sub(1_439), &budget);
        }
        assert_eq!(log.iter().count(), 1_440);
        assert!(log.bytes.len() <= 1_440 * 6, "{}", log.bytes.len());
        assert!(budget.used() <= 1_440 * 24, "{}", budget.used());
        let no_memory = MemoryBudget::new(0);
        log.clear(&budget);
        log.push(1, &counts(1, 1, 1), &no_memory);
        assert_eq!(log.iter().count(), 0);
    }
}
