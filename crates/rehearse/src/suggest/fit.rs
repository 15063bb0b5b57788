//! Searches the smallest numbers with which limits keep a goal, by the algorithms themselves.

use tidegate::limit::MAX_COUNT;
use tidegate::store::{Charge, Request, Scope};
use tidegate::{Algorithm, Limit, LimitError, MemoryStore, Rate, Timestamp};

use super::collect::GrantedRequests;
use super::goal::{SuggestGoal, SuggestShare};

/// Limits that were fitted.
pub(super) struct FittedLimits {
    pub(super) limits: Vec<Limit>,
    /// Whether they had to be raised because costs are not equal.
    pub(super) is_raised: bool,
}

/// Fits the numbers of limits, each with its part of the goal.
pub(super) fn fit(
    was: &[Limit],
    requests: &GrantedRequests,
    goal: &SuggestGoal,
    headroom: SuggestShare,
) -> Result<FittedLimits, LimitError> {
    let parts = was.len() as u64;
    let search = LimitSearch {
        requests,
        clients: goal.clients(requests.clients.len() as u64, parts),
        denied: goal.requests(requests.count, parts),
    };
    let mut limits = Vec::with_capacity(was.len());
    for limit in was {
        let fitted = search.one(limit)?;
        limits.push(changed(&fitted, |number| headroom.on_top_of(number))?);
    }
    let whole = LimitSearch {
        requests,
        clients: goal.clients(requests.clients.len() as u64, 1),
        denied: goal.requests(requests.count, 1),
    };
    let mut is_raised = false;
    while !whole.is_kept_by(&limits) && limits.iter().any(|limit| limit.rate().count < MAX_COUNT) {
        is_raised = true;
        for limit in &mut limits {
            *limit = changed(limit, |number| number + number.div_ceil(20))?;
        }
    }
    Ok(FittedLimits { limits, is_raised })
}

/// The same limit with other numbers.
fn changed(limit: &Limit, change: impl Fn(u64) -> u64) -> Result<Limit, LimitError> {
    let rate = limit.rate();
    let number = |number: u64| change(number).min(MAX_COUNT);
    let raised: Rate = rate.with_count(number(rate.count));
    let raised = match rate.burst {
        Some(burst) => raised.burst(number(burst)),
        None => raised,
    };
    Limit::new(raised, limit.algorithm())
}

struct LimitSearch<'s> {
    requests: &'s GrantedRequests,
    /// How many clients may have a denied request, and how many requests may be denied: one of the two.
    clients: Option<u64>,
    denied: Option<u64>,
}

impl LimitSearch<'_> {
    /// The smallest limit of the same algorithm and window.
    fn one(&self, was: &Limit) -> Result<Limit, LimitError> {
        let (rate, algorithm) = (was.rate().without_burst(), was.algorithm());
        if !algorithm.is_bucket() {
            let count = self.smallest(|count| Limit::new(rate.with_count(count), algorithm))?;
            return Limit::new(rate.with_count(count), algorithm);
        }
        let log = |count| Limit::new(rate.with_count(count), Algorithm::SlidingWindowLog);
        let count = self.smallest(log)?;
        let bucket = |burst| Limit::new(rate.with_count(count).burst(burst), algorithm);
        let burst = if self.is_kept_by(&[bucket(count)?]) {
            self.between(0, count, bucket)?
        } else {
            count
        };
        bucket(burst)
    }

    /// A number that keeps the goal while the one below it does not; 1 if that does.
    fn smallest(
        &self,
        limit: impl Fn(u64) -> Result<Limit, LimitError>,
    ) -> Result<u64, LimitError> {
        let (mut low, mut high) = (0, 1);
        while !self.is_kept_by(&[limit(high)?]) {
            if high == MAX_COUNT {
                return Ok(high);
            }
            low = high;
            high = (high * 2).min(MAX_COUNT);
        }
        self.between(low, high, limit)
    }

    /// The same between one that does not keep it, or zero, and one that does.
    fn between(
        &self,
        mut low: u64,
        mut high: u64,
        limit: impl Fn(u64) -> Result<Limit, LimitError>,
    ) -> Result<u64, LimitError> {
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.is_kept_by(&[limit(middle)?]) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(high)
    }

    /// Whether these limits together keep the goal, each client alone on its own counters.
    fn is_kept_by(&self, limits: &[Limit]) -> bool {
        let (scope, store) = (Scope::new("suggest"), MemoryStore::new());
        let (mut clients, mut denied) = (0, 0);
        // One after the other has the same counters, so that only those of one are kept.
        let key = "client";
        for requests in self.requests.clients.values() {
            for limit in limits {
                store.forget(&scope, limit, key);
            }
            let mut is_client_denied = false;
            for (time, cost) in requests.iter() {
                let charge = |limit| Charge {
                    scope: &scope,
                    limit,
                    key,
                    cost,
                };
                let charges: smallvec::SmallVec<[Charge<'_>; 2]> =
                    limits.iter().map(charge).collect();
                let outcomes = store.charge(&Request {
                    charges: &charges,
                    at: Some(Timestamp::from_micros(time)),
                    permit: None,
                });
                if outcomes.iter().all(|outcome| outcome.allowed) {
                    continue;
                }
                is_client_denied = true;
                denied += 1;
                // What else is denied to it does not matter.
                if self.clients.is_some() {
                    break;
                }
                if self.denied.is_some_and(|most| denied > most) {
                    return false;
                }
            }
            clients += u64::from(is_client_denied);
            if self.clients.is_some_and(|most| clients > most) {
                return false;
            }
        }
        true
    }
}
