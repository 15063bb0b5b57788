//! Counts in few bytes: numbers of variable length, and only those that are not zero.

use crate::counts::OutcomeCounts;

/// The cost is most often the number of allowed requests.
const COST_IS_ALLOWED: u8 = 1 << 6;
const COST: usize = 5;

/// Writes a record: the distance from the record before it, a byte that says which counts are not zero, and these
/// counts.
pub(crate) fn put_record(bytes: &mut impl Extend<u8>, distance: u64, counts: &OutcomeCounts) {
    put(bytes, distance);
    let counts = counts.array();
    let mut mask = 0;
    for (index, count) in counts.iter().enumerate() {
        mask |= u8::from(*count > 0) << index;
    }
    if counts[COST] > 0 && counts[COST] == counts[0] {
        mask = mask & !(1 << COST) | COST_IS_ALLOWED;
    }
    bytes.extend([mask]);
    for (index, count) in counts.into_iter().enumerate() {
        if mask & 1 << index != 0 {
            put(bytes, count);
        }
    }
}

/// Reads a record: the distance, and the counts.
pub(crate) fn take_record(bytes: &mut impl Iterator<Item = u8>) -> Option<(u64, OutcomeCounts)> {
    let distance = take(bytes)?;
    let mask = bytes.next()?;
    let mut counts = [0; 6];
    for (index, count) in counts.iter_mut().enumerate() {
        if mask & 1 << index != 0 {
            *count = take(bytes)?;
        }
    }
    if mask & COST_IS_ALLOWED != 0 {
        counts[COST] = counts[0];
    }
    Some((distance, OutcomeCounts::from_array(counts)))
}

/// Writes a number, seven bits to a byte.
pub(crate) fn put(bytes: &mut impl Extend<u8>, mut number: u64) {
    while number >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant")]
        bytes.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is small")]
    bytes.extend([number as u8]);
}

/// Reads a number.
pub(crate) fn take(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
