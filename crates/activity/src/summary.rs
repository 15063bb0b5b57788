//! The keys of a period that is over, or of several, with bounds of their counts.

use crate::distinct::DistinctKeys;
use crate::distinct_sketch::DistinctSketch;

/// Keys whose count is below this part of a period's weight are left out of its summary.
const LEAST_PART: u64 = 4_096;

/// The most keys of a summary. With the part above, the error of a summary, and of any number of merged ones, is at
/// most 1/4,096 + 1/1,366 of the weight, which is less than 0.1 %.
const MOST_KEYS: usize = 1_365;

/// A key, and the bounds of its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyCount {
    pub(crate) hash: u64,
    pub(crate) lower: u64,
    pub(crate) upper: u64,
}

/// Keys with their counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeySummary {
    /// By their hashes.
    pub(crate) keys: Box<[KeyCount]>,
    /// Upper bound of the count of any key that is not listed.
    pub(crate) error: u64,
    pub(crate) weight: u64,
    /// All keys, listed or not. `None` if every key is listed, or if distinct keys are not counted.
    distinct: Option<DistinctKeys>,
}

impl KeySummary {
    pub(crate) fn new(
        mut keys: Vec<KeyCount>,
        error: u64,
        weight: u64,
        distinct: Option<DistinctKeys>,
    ) -> Self {
        keys.sort_unstable_by_key(|key| key.hash);
        Self {
            keys: keys.into_boxed_slice(),
            error,
            weight,
            distinct,
        }
    }

    /// The sum of several summaries. No key is left out, and the errors add up.
    pub(crate) fn merged<'s>(parts: impl Iterator<Item = &'s Self> + Clone) -> Self {
        let error = saturating_sum(parts.clone().map(|part| part.error));
        let weight = saturating_sum(parts.clone().map(|part| part.weight));
        let distinct = parts.clone().any(|part| part.distinct.is_some()).then(|| {
            let mut distinct = DistinctKeys::default();
            parts
                .clone()
                .for_each(|part| part.add_distinct(&mut distinct));
            distinct
        });
        // Each count minus the error of its own summary, so that a summary without the key adds only its error.
        let above = |part: &'s Self| {
            let above = |key: &KeyCount| KeyCount {
                upper: key.upper.saturating_sub(part.error),
                ..*key
            };
            part.keys.iter().map(above)
        };
        let mut keys: Vec<KeyCount> = parts.flat_map(above).collect();
        // The stable sort merges runs that are sorted already, as these are.
        keys.sort_by_key(|key| key.hash);
        keys.dedup_by(|next, sum| {
            let is_same = next.hash == sum.hash;
            if is_same {
                sum.lower = sum.lower.saturating_add(next.lower);
                sum.upper = sum.upper.saturating_add(next.upper);
            }
            is_same
        });
        for key in &mut keys {
            key.upper = key.upper.saturating_add(error);
        }
        Self {
            keys: keys.into_boxed_slice(),
            error,
            weight,
            distinct,
        }
    }

    fn add_distinct(&self, distinct: &mut DistinctKeys) {
        match &self.distinct {
            Some(own) => distinct.merge(own),
            None => self.keys.iter().for_each(|key| distinct.add(key.hash)),
        }
    }

    /// Leaves out the keys that hardly count, and those beyond the most that a summary has.
    #[must_use]
    pub(crate) fn cut(mut self, counts_distinct: bool) -> Self {
        let mut error = self.error.max(self.weight / LEAST_PART);
        if self.keys.len() > MOST_KEYS {
            let mut uppers: Vec<u64> = self.keys.iter().map(|key| key.upper).collect();
            let (_, next, _) =
                uppers.select_nth_unstable_by(MOST_KEYS, |one, other| other.cmp(one));
            error = error.max(*next);
        }
        if self.keys.iter().all(|key| key.upper > error) {
            return self;
        }
        if counts_distinct && self.distinct.is_none() {
            let mut distinct = DistinctKeys::default();
            self.add_distinct(&mut distinct);
            self.distinct = Some(distinct);
        }
        let kept = self.keys.iter().filter(|key| key.upper > error);
        self.keys = kept.copied().collect();
        self.error = error;
        self
    }

    pub(crate) fn get(&self, hash: u64) -> Option<&KeyCount> {
        let at = self.keys.binary_search_by_key(&hash, |key| key.hash);
        at.ok().map(|at| &self.keys[at])
    }

    /// The distinct keys: exact if all are listed.
    pub(crate) fn distinct(&self, probe: u64) -> DistinctSketch {
        match &self.distinct {
            Some(distinct) => DistinctSketch::of_registers(probe, distinct.registers()),
            None if self.error == 0 => {
                DistinctSketch::of_hashes(probe, self.keys.iter().map(|key| key.hash))
            }
            // Keys were lost for lack of memory.
            None => DistinctSketch::at_least(self.keys.len() as u64),
        }
    }

    /// The same without keys.
    #[must_use]
    pub(crate) fn without_keys(&self) -> Self {
        let largest = self.keys.iter().map(|key| key.upper).max();
        Self {
            error: self.error.max(largest.unwrap_or(0)),
            weight: self.weight,
            ..Self::default()
        }
    }

    /// The memory of the keys.
    pub(crate) fn bytes(&self) -> usize {
        let distinct = self.distinct.as_ref().map_or(0, |_| DistinctKeys::BYTES);
        size_of_val(&*self.keys) + distinct
    }
}

fn saturating_sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(keys: &[(u64, u64, u64)], error: u64, weight: u64) -> KeySummary {
        let key = |(hash, lower, upper): &(u64, u64, u64)| KeyCount {
            hash: *hash,
            lower: *lower,
            upper: *upper,
        };
        KeySummary::new(keys.iter().map(key).collect(), error, weight, None)
    }

    #[test]
    fn a_key_that_a_part_does_not_list_may_have_its_error() {
        let one = summary(&[(1, 10, 10), (2, 4, 6)], 3, 30);
        let other = summary(&[(2, 7, 7), (3, 5, 9)], 4, 40);
        let sum = KeySummary::merged([&one, &other].into_iter());
        let expected = [(1, 10, 14), (2, 11, 13), (3, 5, 12)];
        let keys: Vec<_> = sum
            .keys
            .iter()
            .map(|key| (key.hash, key.lower, key.upper))
            .collect();
        assert_eq!(keys, expected);
        assert_eq!((sum.error, sum.weight), (7, 70));
    }

    #[test]
    fn what_hardly_counts_is_left_out_and_still_counted_as_distinct() {
        let keys: Vec<_> = (1..=3_000_u64).map(|hash| (hash, 10, 10)).collect();
        let cut = summary(&keys, 0, 30_000).cut(true);
        assert!(cut.keys.is_empty(), "none is larger than the others");
        assert_eq!(cut.error, 10);
        let distinct = cut.distinct(0).count();
        assert!(distinct.abs_diff(3_000) < 150, "{distinct}");

        let mut keys = keys[..1_000].to_vec();
        keys.push((5_000, 31_000, 31_000));
        let cut = summary(&keys, 0, 41_000).cut(true);
        assert_eq!((cut.keys.len(), cut.error), (1, 10));
        assert_eq!(cut.get(5_000).unwrap().lower, 31_000);
        assert!(cut.get(1).is_none());

        let whole = summary(&[(1, 1, 1), (2, 1, 1)], 0, 2).cut(true);
        assert_eq!(
            (whole.keys.len(), whole.error, whole.distinct(0).count()),
            (2, 0, 2)
        );
    }
}
