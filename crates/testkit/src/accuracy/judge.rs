//! Compares the decisions of a limiter with the reference, with an ideal log, and with the promise.

use std::collections::BTreeMap;

use tidegate_core::{Algorithm, Limit, LimitError, Micros, Outcome, PermitId, Timestamp, Window};

use super::promise::{AdmittedArrival, most_in_any_window, over_promise};
use crate::timeline::START;
use tidegate_core::conformance::ModelState;

/// A decision about an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecidedArrival {
    /// As of when it was decided.
    pub at: Timestamp,
    /// The number of its key.
    pub key: u32,
    /// Whether it was admitted.
    pub allowed: bool,
    /// How long an admitted request has to wait.
    pub delay: Micros,
}

impl DecidedArrival {
    /// The decision of an outcome, as of this time.
    pub fn new(at: Timestamp, key: u32, outcome: &Outcome) -> Self {
        Self {
            at,
            key,
            allowed: outcome.allowed,
            delay: outcome.delay,
        }
    }
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accuracy {
    /// Requests.
    pub arrivals: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// The most that one key had in any interval of one window's length.
    pub most_in_window: u64,
    /// By how many requests the promise of the algorithm was exceeded, at the worst.
    pub over_promise: u64,
    /// Decisions that the reference makes otherwise.
    pub different: u64,
    /// Admitted by the reference.
    pub reference: u64,
    /// Admitted beyond the reference, summed over the keys that got more.
    pub over_reference: u64,
    /// Admitted less than by the reference, summed over the keys that got less.
    pub under_reference: u64,
    /// Admitted beyond an ideal log of the same rate, summed over the keys that got more.
    pub over_ideal: u64,
    /// Admitted less than by that log, summed over the keys that got less.
    pub under_ideal: u64,
    /// What went on in each window since the start, over all keys.
    pub per_window: Vec<u64>,
    /// What would have gone on by the reference.
    pub reference_per_window: Vec<u64>,
}

/// Counts one in the window that holds this time.
fn count_in(windows: &mut Vec<u64>, length: Micros, at: Timestamp) {
    let window = at.since(START).get() / length.get();
    let window = usize::try_from(window).unwrap_or(usize::MAX);
    if windows.len() <= window {
        windows.resize(window + 1, 0);
    }
    windows[window] += 1;
}

/// Takes decisions in their order.
pub struct Judge {
    limit: Limit,
    ideal: Limit,
    window: Micros,
    keys: BTreeMap<u32, JudgedKey>,
    figures: Accuracy,
}

/// One key: what it was admitted, and what it would have been.
struct JudgedKey {
    reference: ModelState,
    ideal: ModelState,
    admitted: Vec<AdmittedArrival>,
    by_reference: u64,
    by_ideal: u64,
}

impl Judge {
    /// For decisions under this limit.
    pub fn new(limit: &Limit) -> Result<Self, LimitError> {
        let mut rate = limit.rate();
        rate.burst = None;
        Ok(Self {
            limit: limit.clone(),
            ideal: Limit::new(rate, Algorithm::SlidingWindowLog)?,
            window: rate.window.map_or(Micros::SECOND, Window::longest),
            keys: BTreeMap::new(),
            figures: Accuracy::default(),
        })
    }

    /// Takes the next decision: not before the one in front of it.
    pub fn take(&mut self, decided: DecidedArrival) {
        let (limit, ideal) = (&self.limit, &self.ideal);
        let key = self.keys.entry(decided.key).or_insert_with(|| JudgedKey {
            reference: ModelState::fresh(limit.form()),
            ideal: ModelState::fresh(ideal.form()),
            admitted: Vec::new(),
            by_reference: 0,
            by_ideal: 0,
        });
        let figures = &mut self.figures;
        figures.arrivals += 1;
        let permit = PermitId::from_u128(figures.arrivals.into());
        let expected = key.reference.charge(limit.form(), 1, decided.at, permit);
        if expected.allowed {
            key.by_reference += 1;
            let goes_on_at = decided.at + expected.delay;
            count_in(&mut figures.reference_per_window, self.window, goes_on_at);
        }
        let ideally = key.ideal.charge(ideal.form(), 1, decided.at, permit);
        key.by_ideal += u64::from(ideally.allowed);
        figures.different += u64::from(expected.allowed != decided.allowed);
        if decided.allowed {
            let goes_on_at = decided.at + decided.delay;
            key.admitted.push(AdmittedArrival {
                at: decided.at,
                goes_on_at,
            });
            count_in(&mut figures.per_window, self.window, goes_on_at);
        }
    }

    /// The figures of all decisions.
    pub fn finish(self) -> Accuracy {
        let mut figures = self.figures;
        for key in self.keys.values() {
            let admitted = key.admitted.len() as u64;
            figures.admitted += admitted;
            figures.reference += key.by_reference;
            figures.over_reference += admitted.saturating_sub(key.by_reference);
            figures.under_reference += key.by_reference.saturating_sub(admitted);
            figures.over_ideal += admitted.saturating_sub(key.by_ideal);
            figures.under_ideal += key.by_ideal.saturating_sub(admitted);
            let most = most_in_any_window(&key.admitted, self.window);
            figures.most_in_window = figures.most_in_window.max(most);
            let over = over_promise(&self.limit, &key.admitted);
            figures.over_promise = figures.over_promise.max(over);
        }
        figures
    }
}
