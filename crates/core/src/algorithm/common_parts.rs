//! Remainders of requests in parts that do not depend on a window, so that a bucket can take over
//! the state of another with a different one.
//!
//! Mirrored by `crates/redis-wire/lua/common_parts.lua`.

use super::arithmetic::Divisor;
use crate::limit::MAX_WINDOW;

/// How many parts make a request: the microseconds of the longest window. Most windows that people
/// write divide it, and then nothing is rounded.
pub(crate) const PARTS: u64 = MAX_WINDOW.get();

/// How the remainders of one window are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommonParts {
    window: Divisor,
    /// How many parts make one of the window's own, if that is a whole number.
    each: Option<Divisor>,
}

impl CommonParts {
    /// For remainders over `window`, which is no longer than the longest.
    pub(super) fn new(window: Divisor) -> Self {
        let (each, rest) = window.div_rem(PARTS);
        Self {
            window,
            each: (rest == 0).then(|| Divisor::new(each)),
        }
    }

    /// From parts of the window, rounded up.
    #[inline]
    pub(super) fn of_part(self, part: u64) -> u64 {
        match self.each {
            Some(each) => part * each.get(),
            None => self.window.mul_add_div_ceil(part, PARTS, 0),
        }
    }

    /// To whole requests and parts of the window. The inverse of [`of_part`](Self::of_part); any
    /// other value is rounded up.
    #[inline]
    pub(super) fn to_part(self, kept: u64) -> (u64, u64) {
        let (part, is_exact) = match self.each {
            Some(each) => {
                let (part, rest) = each.div_rem(kept);
                (part, rest == 0)
            }
            None => self.nearest(kept),
        };
        let part = part + u64::from(!is_exact);
        if part < self.window.get() {
            (0, part)
        } else {
            (1, 0)
        }
    }

    #[cold]
    fn nearest(self, kept: u64) -> (u64, bool) {
        let (part, rest) = Divisor::new(PARTS).mul_div(kept, self.window.get());
        (part, rest == 0 || self.of_part(part) == kept)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_window() -> impl Strategy<Value = u64> {
        let common = vec![1, 2, 5, 7, 10, 60, 3_600, 86_400, 604_800, 31_622_400];
        prop_oneof![
            proptest::sample::select(common).prop_map(|seconds| seconds * 1_000_000),
            (1_u64..=31_622_400).prop_map(|seconds| seconds * 1_000_000),
            1_000..=PARTS,
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn a_part_is_read_as_it_was_kept(window in any_window(), part: u64) {
            let common = CommonParts::new(Divisor::new(window));
            let part = part % window;
            let kept = common.of_part(part);
            prop_assert!(kept < PARTS);
            prop_assert_eq!(common.to_part(kept), (0, part));
        }

        /// Up to less than one of the kept parts, and exactly where windows divide the longest.
        #[test]
        fn another_window_reads_no_less(window in any_window(), other in any_window(), part: u64) {
            let common = CommonParts::new(Divisor::new(other));
            let part = part % window;
            let kept = CommonParts::new(Divisor::new(window)).of_part(part);
            let (whole, read) = common.to_part(kept);
            prop_assert!(read < other);
            let read = u128::from(read) + u128::from(whole) * u128::from(other);
            let lost = u128::from(common.each.is_none());
            prop_assert!(read * u128::from(PARTS) + lost * u128::from(other) >= u128::from(kept) * u128::from(other));
            prop_assert!((read - 1.min(read)) * u128::from(PARTS) <= u128::from(kept) * u128::from(other));
        }
    }
}
