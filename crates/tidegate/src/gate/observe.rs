//! What a limit that moves by itself hears of the requests that it let through.

use super::Decision;
use super::decision::Slot;
use crate::adaptive::{Ended, Sample};

impl Decision {
    /// Tells the rules whose limits follow the upstream how the request ended. To be called once, for a
    /// request that was let through and whose end is known: one whose client went away tells nothing.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate::document::Source;
    /// use tidegate::rules::{RuleSet, RuleSettings};
    /// use tidegate::{Attributes, Ended, Gate, MemoryStore, Micros};
    ///
    /// let source = Source::new("rules.yaml", "
    /// rules:
    ///   - {id: upstream, per: [], algorithm: concurrency, adaptive: {min: 10, max: 500, target: 200ms}}
    /// ");
    /// let (rules, problems) = RuleSet::read(&source, &RuleSettings::default());
    /// let gate = Gate::new(MemoryStore::new(), rules.expect("no problems"));
    ///
    /// let decision = gate.decide(&Attributes::new()).await;
    /// // … the upstream is asked, and answers after 35 milliseconds …
    /// decision.observe(Ended::Answered(Micros::from_millis(35)));
    /// if let Some(lease) = decision.lease() {
    ///     gate.release(lease).await?;
    /// }
    /// # Ok::<(), tidegate::StoreError>(()) }).unwrap();
    /// ```
    pub fn observe(&self, ended: Ended) {
        if self.is_denied() {
            return;
        }
        for slot in self.slots() {
            if let Some(adaptive) = self.rules().at(slot.rule).adaptive()
                && let Some(in_flight) = in_flight(slot)
            {
                adaptive.observe(Sample { ended, in_flight });
            }
        }
    }

    /// Whether the limit of any rule follows how this request ends.
    pub fn is_observed(&self) -> bool {
        self.slots().iter().any(|slot| slot.moved.is_some())
    }
}

/// How many places of the whole limit were held. A share of it that was used as far stands for the whole.
fn in_flight(slot: &Slot) -> Option<u64> {
    let whole = slot.moved.as_ref()?.capacity();
    let granted = slot.outcome.limit.max(1);
    let held = slot.outcome.limit.saturating_sub(slot.outcome.remaining);
    let in_flight = u128::from(held) * u128::from(whole) / u128::from(granted);
    Some(u64::try_from(in_flight).unwrap_or(u64::MAX))
}
