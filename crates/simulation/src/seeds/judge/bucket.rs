//! Buckets: over every interval, what certainly counts within it is no more than the burst and what flows in.
//!
//! For an interval from `start` to `end` that is `sum * window + count * start <= burst * window + count * end`.
//! The left side is kept for every start while ends are visited in order.

use tidegate_core::algorithm::{Bucket, Form};

use super::{Admission, Excess, Promise};

pub(super) fn check(promise: &Promise<'_>, admissions: &[Admission]) -> Option<Excess> {
    let buckets = promise.limits.iter();
    let buckets = buckets.filter_map(|(_, _, limit)| match limit.form() {
        Form::Bucket(bucket) => Some(bucket),
        _ => None,
    });
    // The fastest and largest, for all of the time.
    let count = i128::from(buckets.clone().map(Bucket::count).max()?);
    let burst = i128::from(buckets.clone().map(Bucket::burst).max()?);
    let window = i128::from(buckets.clone().next()?.window().get());
    let mut by_end = admissions.to_vec();
    by_end.sort_unstable_by_key(|admission| (admission.to, admission.from));
    let mut extras = promise.extras.to_vec();
    extras.sort_unstable_by_key(|extra| extra.from);
    let mut extras = extras.iter().peekable();
    let mut starts: Vec<u64> = admissions.iter().map(|admission| admission.from).collect();
    starts.sort_unstable();
    starts.dedup();
    let begin = *starts.first()?;
    let since = |time: u64| i128::from(time) - i128::from(begin);
    let flowed = starts.iter().map(|start| count * since(*start));
    let mut sides = PrefixMaxima::new(flowed.collect());
    for admission in by_end {
        while let Some(extra) = extras.next_if(|extra| extra.from <= admission.to) {
            let before_end = starts.partition_point(|start| *start <= extra.until);
            sides.add(before_end, -i128::from(extra.units) * window);
        }
        let up_to = starts.partition_point(|start| *start <= admission.from);
        sides.add(up_to, i128::from(admission.cost) * window);
        let within = starts.partition_point(|start| *start <= admission.to);
        let most = burst * window + count * since(admission.to);
        let over = sides.max(within) - most;
        if over > 0 {
            let units = u64::try_from((over + window - 1) / window).unwrap_or(u64::MAX);
            let at = admission.to;
            return Some(Excess { at, units });
        }
    }
    None
}

/// Numbers to whose first ones something is added, and of whose first ones the largest is wanted: a segment
/// tree.
struct PrefixMaxima {
    /// The number of leaves, a power of two.
    leaves: usize,
    /// The maximum below each node, without what was added to nodes above it.
    largest: Vec<i128>,
    /// What was added to all numbers below each node.
    added: Vec<i128>,
}

/// Less than any sum, and far enough from the least number to add to it.
const NOTHING: i128 = i128::MIN / 4;

impl PrefixMaxima {
    fn new(numbers: Vec<i128>) -> Self {
        let leaves = numbers.len().next_power_of_two();
        let mut largest = vec![NOTHING; leaves];
        largest.extend(numbers);
        largest.resize(2 * leaves, NOTHING);
        for node in (1..leaves).rev() {
            largest[node] = largest[2 * node].max(largest[2 * node + 1]);
        }
        Self {
            leaves,
            largest,
            added: vec![0; 2 * leaves],
        }
    }

    /// Adds to the first `count` numbers.
    fn add(&mut self, count: usize, number: i128) {
        self.add_below(1, self.leaves, count, number);
    }

    fn add_below(&mut self, node: usize, width: usize, count: usize, number: i128) {
        if count == 0 {
            return;
        }
        if count >= width {
            self.largest[node] += number;
            self.added[node] += number;
            return;
        }
        let half = width / 2;
        self.add_below(2 * node, half, count.min(half), number);
        self.add_below(2 * node + 1, half, count.saturating_sub(half), number);
        let below = self.largest[2 * node].max(self.largest[2 * node + 1]);
        self.largest[node] = below + self.added[node];
    }

    /// The largest of the first `count` numbers.
    fn max(&self, count: usize) -> i128 {
        self.max_below(1, self.leaves, count)
    }

    fn max_below(&self, node: usize, width: usize, count: usize) -> i128 {
        if count == 0 {
            return NOTHING;
        }
        if count >= width {
            return self.largest[node];
        }
        let half = width / 2;
        let left = self.max_below(2 * node, half, count.min(half));
        let right = self.max_below(2 * node + 1, half, count.saturating_sub(half));
        left.max(right) + self.added[node]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    #[test]
    fn maxima_are_those_of_a_plain_list() {
        let mut random = SeededRandom::new(5);
        let mut numbers: Vec<i128> = (0..37).map(|_| i128::from(random.below(100))).collect();
        let mut maxima = PrefixMaxima::new(numbers.clone());
        for _ in 0..1_000 {
            let count = usize::try_from(random.below(38)).unwrap();
            let number = i128::from(random.below(50)) - 25;
            maxima.add(count, number);
            numbers[..count].iter_mut().for_each(|old| *old += number);
            let count = usize::try_from(random.between(1, 37)).unwrap();
            assert_eq!(Some(&maxima.max(count)), numbers[..count].iter().max());
        }
    }
}
