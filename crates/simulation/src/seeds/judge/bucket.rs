//! Buckets: each admission is charged to one reference bucket as soon as it has room, those that must count
//! soonest first. If one does not fit by its end, no other order would have made it fit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::algorithm::Form;

use super::{Admission, Excess, Promise};

/// The bucket that is checked against, in units of a window's part of a request.
struct ReferenceBucket {
    count: u128,
    window: u128,
    capacity: u128,
    level: u128,
    /// What waits to be charged: its end, and how much is left of it.
    open: BinaryHeap<Reverse<(u64, u128)>>,
}

impl ReferenceBucket {
    fn charge_open(&mut self) {
        while let Some(Reverse((to, rest))) = self.open.pop() {
            let taken = rest.min(self.level);
            self.level -= taken;
            if taken < rest {
                self.open.push(Reverse((to, rest - taken)));
                return;
            }
        }
    }

    fn pass(&mut self, time: u64) {
        self.level += u128::from(time) * self.count;
        self.charge_open();
        self.level = self.level.min(self.capacity);
    }
}

/// The fastest and largest of the promise's buckets, for all of the time.
fn reference(promise: &Promise<'_>) -> Option<ReferenceBucket> {
    let buckets = promise
        .limits
        .iter()
        .filter_map(|(_, _, limit)| match limit.form() {
            Form::Bucket(bucket) => Some(bucket),
            _ => None,
        });
    let count = buckets.clone().map(|bucket| bucket.count()).max()?;
    let burst = buckets.clone().map(|bucket| bucket.burst()).max()?;
    let window = u128::from(buckets.clone().next()?.window().get());
    let capacity = u128::from(burst) * window;
    Some(ReferenceBucket {
        count: count.into(),
        window,
        capacity,
        level: capacity,
        open: BinaryHeap::new(),
    })
}

pub(super) fn check(promise: &Promise<'_>, admissions: &[Admission]) -> Option<Excess> {
    let mut bucket = reference(promise)?;
    let mut admissions = admissions.to_vec();
    admissions.sort_unstable();
    let mut extras: Vec<_> = promise.extras.to_vec();
    let ends = admissions
        .iter()
        .flat_map(|admission| [admission.from, admission.to]);
    let mut times: Vec<u64> = ends.collect();
    times.sort_unstable();
    times.dedup();
    let mut next = admissions.iter().peekable();
    let mut last = *times.first()?;
    for time in times {
        bucket.pass(time - last);
        last = time;
        while let Some(admission) = next.next_if(|admission| admission.from <= time) {
            let cost = u128::from(admission.cost) * bucket.window;
            bucket.open.push(Reverse((admission.to, cost)));
        }
        bucket.charge_open();
        while let Some(Reverse((to, mut rest))) = bucket.open.pop() {
            if to > time {
                bucket.open.push(Reverse((to, rest)));
                break;
            }
            for extra in &mut extras {
                if extra.from <= time && time < extra.until {
                    let whole = rest.div_ceil(bucket.window).min(extra.units.into());
                    extra.units -= u64::try_from(whole).unwrap_or(extra.units);
                    rest = rest.saturating_sub(whole * bucket.window);
                }
            }
            if rest > 0 {
                let units = u64::try_from(rest.div_ceil(bucket.window)).unwrap_or(u64::MAX);
                return Some(Excess { at: time, units });
            }
        }
    }
    None
}
