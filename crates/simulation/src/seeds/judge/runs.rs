//! Sliding windows: what certainly counts within any run of slots, or any interval, is no more than the limit.

use super::{Admission, Excess, Promise};

/// Checks every run of `counted` slots of a length.
pub(super) fn check_slots(
    promise: &Promise<'_>,
    admissions: &[Admission],
    (slot, counted): (u64, u64),
) -> Option<Excess> {
    let starts = admissions
        .iter()
        .map(|admission| admission.from / slot * slot);
    check(promise, admissions, starts, slot * counted)
}

/// Checks every interval of a length.
pub(super) fn check_any(
    promise: &Promise<'_>,
    admissions: &[Admission],
    window: u64,
) -> Option<Excess> {
    let starts = admissions.iter().map(|admission| admission.from);
    check(promise, admissions, starts, window)
}

fn check(
    promise: &Promise<'_>,
    admissions: &[Admission],
    starts: impl Iterator<Item = u64>,
    length: u64,
) -> Option<Excess> {
    let mut sorted = admissions.to_vec();
    sorted.sort_unstable();
    let mut starts: Vec<u64> = starts.collect();
    starts.sort_unstable();
    starts.dedup();
    for start in starts {
        let end = start + length;
        let first = sorted.partition_point(|admission| admission.from < start);
        let inside = sorted[first..]
            .iter()
            .take_while(|admission| admission.from < end)
            .filter(|admission| admission.to < end);
        let sum: u64 = inside.map(|admission| admission.cost).sum();
        let extras = promise.extras.iter();
        let extra: u64 = extras
            .filter(|extra| extra.from < end && start < extra.until)
            .map(|extra| extra.units)
            .sum();
        let most = promise.capacity(start, end) + extra;
        if sum > most {
            return Some(Excess {
                at: start,
                units: sum - most,
            });
        }
    }
    None
}
