//! Checks what was admitted against what is promised.
//!
//! An admission counts at some instant between its question and its answer; which one is not known. So a
//! promise is broken only if no choice of these instants keeps it.

mod bucket;
mod runs;
mod windows;

use tidegate_core::Limit;
use tidegate_core::algorithm::Form;

/// A request that was admitted, by the clock that its limit goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Admission {
    /// It counts from here on…
    pub(crate) from: u64,
    /// …to here.
    pub(crate) to: u64,
    pub(crate) cost: u64,
}

/// Units that may be admitted beyond the limit, because state was lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtraQuota {
    pub(crate) units: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// More was admitted than is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Around when, by the clock of the limit.
    pub(crate) at: u64,
    /// By how many units at least.
    pub(crate) units: u64,
}

/// What a limit promised over a run.
pub(crate) struct Promise<'p> {
    /// The limits that were in force, with the times from and until which they were.
    pub(crate) limits: &'p [(u64, u64, Limit)],
    pub(crate) extras: &'p [ExtraQuota],
}

impl Promise<'_> {
    /// The most that any limit in force between two times granted.
    fn capacity(&self, from: u64, until: u64) -> u64 {
        let in_force = self
            .limits
            .iter()
            .filter(|(begin, end, _)| *begin < until && from < *end);
        in_force
            .map(|(_, _, limit)| limit.capacity())
            .max()
            .unwrap_or(0)
    }

    /// Where more was admitted than promised, if anywhere.
    pub(crate) fn check(&self, admissions: &[Admission]) -> Option<Excess> {
        let (_, _, limit) = self.limits.first()?;
        match limit.form() {
            Form::Bucket(_) => bucket::check(self, admissions),
            Form::FixedWindow(_) => {
                let window = limit.rate().window?.around(tidegate_core::Timestamp::EPOCH);
                windows::check(self, admissions, window.1.as_micros())
            }
            // In one window no more than the limit; what the previous one adds to that is not checked here.
            Form::SlidingCounter(form) => windows::check(self, admissions, form.window().get()),
            Form::SlidingSlots(form) => {
                runs::check_slots(self, admissions, (form.slot().get(), form.counted()))
            }
            Form::SlidingLog(form) => runs::check_any(self, admissions, form.window().get()),
            Form::Concurrency(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
