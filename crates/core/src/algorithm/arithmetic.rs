//! The one operation whose intermediate result does not fit into a plain integer: a product, divided.
//!
//! It has a file of its own because a Redis script needs a different body for it, in which no value reaches 2^53.
//! Everything else in the algorithms is the same, line for line, on both sides.

/// A number to divide by, many times: its reciprocal is kept, which turns the division of a word
/// into two multiplications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divisor {
    divisor: u64,
    /// 2^64 / divisor, rounded down; for a divisor of 1, one less than that.
    reciprocal: u64,
}

impl Divisor {
    /// Divides by `divisor`, which is not zero: limits are validated before anything is divided by their
    /// numbers.
    pub(crate) fn new(divisor: u64) -> Self {
        debug_assert!(divisor != 0, "limits have no zero count and no zero window");
        let divisor = divisor.max(1);
        let reciprocal = u64::try_from((1 << 64) / u128::from(divisor)).unwrap_or(u64::MAX);
        Self {
            divisor,
            reciprocal,
        }
    }

    /// The number itself.
    #[inline]
    pub fn get(self) -> u64 {
        self.divisor
    }

    /// Whole part and remainder of `dividend` over this.
    #[inline]
    pub fn div_rem(self, dividend: u64) -> (u64, u64) {
        if !HAS_WIDE_PRODUCTS {
            return (dividend / self.divisor, dividend % self.divisor);
        }
        // The estimate is right, or too small by one.
        let estimate = high_half(dividend, self.reciprocal);
        let rest = dividend - estimate * self.divisor;
        if rest < self.divisor {
            (estimate, rest)
        } else {
            (estimate + 1, rest - self.divisor)
        }
    }

    /// Whole part and remainder of `a * b` over this. A whole part beyond `u64` becomes `u64::MAX`.
    #[inline]
    pub fn mul_div(self, a: u64, b: u64) -> (u64, u64) {
        match product(a, b) {
            Some(product) => self.div_rem(product),
            None => self.wide_div_rem(u128::from(a) * u128::from(b)),
        }
    }

    /// `(a * b + c)` over this, rounded up; beyond `u64` it becomes `u64::MAX`.
    #[inline]
    pub fn mul_add_div_ceil(self, a: u64, b: u64, c: u64) -> u64 {
        let Some(sum) = product(a, b).and_then(|product| product.checked_add(c)) else {
            return self.wide_div_ceil(u128::from(a) * u128::from(b) + u128::from(c));
        };
        if !HAS_WIDE_PRODUCTS {
            return sum.div_ceil(self.divisor);
        }
        // The estimate is right, or too small by one.
        let estimate = high_half(sum, self.reciprocal);
        let rest = sum - estimate * self.divisor;
        estimate + u64::from(rest > 0) + u64::from(rest > self.divisor)
    }

    #[cold]
    #[inline(never)]
    fn wide_div_ceil(self, dividend: u128) -> u64 {
        let (whole, rest) = self.wide_div_rem(dividend);
        whole.saturating_add(u64::from(rest > 0))
    }

    #[cold]
    #[inline(never)]
    fn wide_div_rem(self, dividend: u128) -> (u64, u64) {
        let divisor = u128::from(self.divisor);
        let whole = u64::try_from(dividend / divisor).unwrap_or(u64::MAX);
        let rest = u64::try_from(dividend % divisor).unwrap_or(u64::MAX);
        (whole, rest)
    }
}

/// Whether processors multiply words to twice their length. Elsewhere that is the call of a function, and a division is
/// faster than a reciprocal.
const HAS_WIDE_PRODUCTS: bool = cfg!(target_pointer_width = "64");

/// A product, if it fits into a word.
#[inline]
fn product(a: u64, b: u64) -> Option<u64> {
    let is_short = |word: u64| u32::try_from(word).is_ok();
    if !HAS_WIDE_PRODUCTS && is_short(a) && is_short(b) {
        return Some(a * b);
    }
    a.checked_mul(b)
}

#[inline]
fn high_half(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of every length, and those around powers of two.
    fn any_length() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64_u32, 0..3_u8).prop_map(|(number, shift, edge)| match edge {
            0 => number >> shift,
            1 => 1 << shift,
            _ => (1 << shift) - 1,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn a_kept_reciprocal_divides_like_a_division(dividend in any_length(), divisor in any_length()) {
            let divisor = divisor.max(1);
            let wanted = (dividend / divisor, dividend % divisor);
            prop_assert_eq!(Divisor::new(divisor).div_rem(dividend), wanted);
        }

        #[test]
        fn products_are_put_together_again(a in any_length(), b in any_length(), c in any_length(), divisor in any_length()) {
            let divisor = divisor.max(1);
            let (whole, rest) = Divisor::new(divisor).mul_div(a, b);
            let product = u128::from(a) * u128::from(b);
            prop_assert!(rest < divisor);
            if whole < u64::MAX {
                prop_assert_eq!(u128::from(whole) * u128::from(divisor) + u128::from(rest), product);
            }
            let sum = (product + u128::from(c)).div_ceil(divisor.into());
            let wanted = u64::try_from(sum).unwrap_or(u64::MAX);
            prop_assert_eq!(Divisor::new(divisor).mul_add_div_ceil(a, b, c), wanted);
        }
    }
}
