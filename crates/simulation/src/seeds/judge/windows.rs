//! Fixed windows: each admission is put into one of the windows in which it may count, those that must be
//! in the earliest first. If that does not fit, nothing does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Admission, Excess, Promise};

/// Checks windows that begin at multiples of their length.
pub(super) fn check(
    promise: &Promise<'_>,
    admissions: &[Admission],
    window: u64,
) -> Option<Excess> {
    let mut admissions = admissions.to_vec();
    admissions.sort_unstable();
    let mut extras: Vec<_> = promise.extras.to_vec();
    let mut next = admissions.iter().peekable();
    // What may count in the current window, by the last window in which it may.
    let mut open: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut index = admissions.first()?.from / window;
    loop {
        while let Some(admission) = next.next_if(|admission| admission.from / window <= index) {
            open.push(Reverse((admission.to / window, admission.cost)));
        }
        let (start, end) = (index * window, (index + 1) * window);
        let mut room = promise.capacity(start, end);
        while let Some(Reverse((last, cost))) = open.pop() {
            let taken = cost.min(room);
            room -= taken;
            let mut rest = cost - taken;
            if last > index {
                if rest > 0 {
                    open.push(Reverse((last, rest)));
                    break;
                }
                continue;
            }
            for extra in &mut extras {
                if extra.from < end && start < extra.until {
                    let taken = rest.min(extra.units);
                    extra.units -= taken;
                    rest -= taken;
                }
            }
            if rest > 0 {
                let others = open.iter().filter(|Reverse((last, _))| *last <= index);
                let units = rest + others.map(|Reverse((_, cost))| cost).sum::<u64>();
                return Some(Excess { at: start, units });
            }
        }
        index = match (open.is_empty(), next.peek()) {
            (true, None) => return None,
            (true, Some(admission)) => (admission.from / window).max(index + 1),
            (false, _) => index + 1,
        };
    }
}
