//! Sees every decision in one place: for metrics, logs and live activity.

use super::{Asked, Charged, Decision, Decisions};
use crate::attributes::Attributes;
use crate::rules::FrontEnd;

/// Sees every decision of the gate that it is [given to](super::Gate::with_observer), whatever front end
/// asked. Called on the path of the request: it should be quick.
pub trait Observer: Send + Sync + 'static {
    /// A decision begins. Returns a reading of the observer's own clock, which it gets back at the end.
    fn begin(&self) -> u64 {
        0
    }

    /// A request was decided.
    fn decided(&self, observed: &Observed<'_, '_>);

    /// A limit that the caller brought was charged.
    fn charged(&self, _began: u64, _charged: &Charged) {}
}

/// A request that was decided.
#[derive(Debug)]
pub struct Observed<'o, 'b> {
    /// What [`Observer::begin`] returned.
    pub began: u64,
    /// Who asked.
    pub front_end: FrontEnd,
    /// What was decided about each of its parts.
    pub decisions: &'o Decisions,
    pub(super) asked: Asked<'o, 'b>,
}

impl<'o, 'b> Observed<'o, 'b> {
    /// Each decision, with the attributes that it is about.
    pub fn parts(&self) -> impl Iterator<Item = (&'o Decision, &'o Attributes<'b>)> {
        self.decisions.iter().zip(self.asked.attributes())
    }
}
