//! Waiting for a turn: the limit that a request is charged to if it may wait, and for how long it then has to.

use super::{Algorithm, Limit};
use crate::algorithm::Form;
use crate::outcome::{Outcome, Retry};
use crate::time::Micros;

impl Limit {
    /// The same limit for a request that may wait for `max_wait`: a token bucket reserves its turn. Where that is more
    /// than it can count, and for other algorithms, nothing changes: such a limit is asked again.
    #[must_use]
    pub fn patient(&self, max_wait: Micros) -> Self {
        match self.algorithm {
            Algorithm::TokenBucket { .. } => self
                .with_max_delay(max_wait)
                .unwrap_or_else(|_| self.clone()),
            _ => self.clone(),
        }
    }

    /// How long a request of this cost has to wait, by the outcome of this limit: before it goes on if it was charged, or
    /// before it may at the earliest if it was denied. Nothing if it never may.
    pub fn wait_for(&self, outcome: &Outcome, cost: u64) -> Option<Micros> {
        match outcome.retry {
            Retry::Now => Some(outcome.delay),
            Retry::After(wait) => Some(wait + self.delay_after(cost)),
            Retry::Never => None,
        }
    }

    /// What a denied request would still have to wait after it is admitted.
    fn delay_after(&self, cost: u64) -> Micros {
        match (self.algorithm, &self.form) {
            (Algorithm::TokenBucket { max_delay }, _) => max_delay,
            // It is admitted when there is just room for it: all of the rest is before it.
            (Algorithm::LeakyBucket { shape: true }, Form::Bucket(bucket)) => {
                bucket.time_for(bucket.burst().saturating_sub(cost))
            }
            _ => Micros::ZERO,
        }
    }
}

/// How long a request of this cost has to wait for all of these limits; nothing if it never may go on, or if there are
/// no limits.
///
/// ```
/// use tidegate_core::limit::wait_for_all;
/// use tidegate_core::{Charge, Limit, ManualClock, MemoryStore, Micros, Request, Scope, Timestamp};
///
/// let store = MemoryStore::builder_with(ManualClock::new(Timestamp::from_seconds(1_000)), [7; 32]).build();
/// let (scope, limit) = (Scope::new("pages"), "2/second burst 1".parse::<Limit>()?);
/// let limits = [limit.patient(Micros::SECOND)];
/// let charges = [Charge { scope: &scope, limit: &limits[0], key: "api.example.com", cost: 1 }];
/// store.charge(&Request::new(&charges));
/// let outcomes = store.charge(&Request::new(&charges));
/// assert!(outcomes[0].allowed);
/// assert_eq!(wait_for_all(&limits, &outcomes, 1), Some(Micros::from_millis(500)));
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
pub fn wait_for_all(limits: &[Limit], outcomes: &[Outcome], cost: u64) -> Option<Micros> {
    let asked = limits.iter().zip(outcomes);
    let waits = asked.map(|(limit, outcome)| limit.wait_for(outcome, cost));
    waits.reduce(|one, other| Some(one?.max(other?))).flatten()
}
