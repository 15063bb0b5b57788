//! How many distinct keys there were: `HyperLogLog` with 4,096 registers, a standard error of 1.6 %.
//!
//! `distinct_sketch.rs` merges them with those of other instances, which may have fewer registers.

/// The first bits of a hash choose a register.
pub(crate) const BITS: u32 = 12;
const REGISTERS: usize = 1 << BITS;

/// The registers. Each has the longest run of zero bits, plus one, of the hashes that chose it.
#[derive(Debug, Clone)]
pub(crate) struct DistinctKeys(Box<[u8; REGISTERS]>);

impl Default for DistinctKeys {
    fn default() -> Self {
        Self(Box::new([0; REGISTERS]))
    }
}

impl DistinctKeys {
    /// The memory of one sketch.
    pub(crate) const BYTES: usize = REGISTERS;

    pub(crate) fn add(&mut self, hash: u64) {
        let (register, run) = register_of(mixed(hash));
        let longest = &mut self.0[register];
        *longest = run.max(*longest);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&*other.0) {
            *own = (*own).max(*other);
        }
    }

    pub(crate) fn registers(&self) -> &[u8] {
        &*self.0
    }
}

/// The register of a mixed hash, of 4,096, and the run in it.
pub(crate) fn register_of(mixed: u64) -> (usize, u8) {
    let register = (mixed >> (64 - BITS)) as usize;
    // A bit below the rest ends the run.
    let run = ((mixed << BITS) | 1 << (BITS - 1)).leading_zeros() + 1;
    #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
    let run = run as u8;
    (register, run)
}

/// How many distinct keys registers have seen. There are at least 128 registers.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is an estimate, and never negative"
)]
pub(crate) fn estimate(registers: &[u8]) -> u64 {
    let count = registers.len() as f64;
    let sum: f64 = registers
        .iter()
        .map(|run| 0.5_f64.powi(i32::from(*run)))
        .sum();
    let estimate = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
    let used = registers.iter().filter(|run| **run > 0).count();
    let empty = registers.len() - used;
    // Few keys: how many registers are still empty says more.
    let estimate = if estimate <= 2.5 * count && empty > 0 {
        count * (count / empty as f64).ln()
    } else {
        estimate
    };
    estimate.round() as u64
}

/// Spreads all bits of a hash over all others.
pub(crate) fn mixed(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_within_three_standard_errors() {
        for count in [1_u64, 10, 100, 1_000, 10_000, 12_000, 100_000, 1_000_000] {
            let mut keys = DistinctKeys::default();
            for key in 0..count {
                keys.add(key);
                keys.add(key);
            }
            let found = estimate(keys.registers());
            let wrong = found.abs_diff(count);
            assert!(wrong * 1_000 <= count * 49, "{found} of {count}");
        }
    }

    #[test]
    fn merged_registers_count_each_key_once() {
        let (mut one, mut other) = (DistinctKeys::default(), DistinctKeys::default());
        (0..60_000).for_each(|key| one.add(key));
        (30_000..90_000).for_each(|key| other.add(key));
        let mut all = DistinctKeys::default();
        (0..90_000).for_each(|key| all.add(key));
        one.merge(&other);
        assert_eq!(one.registers(), all.registers());
    }
}
