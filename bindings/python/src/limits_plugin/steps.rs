//! The calls of storages and strategies, as charges of a store. The same for memory and Redis.

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use tidegate::limit::MAX_COUNT;
use tidegate::store::{Charge, Request};
use tidegate::{Clock as _, Micros, Outcome, Retry, Store, StoreError, SystemClock, Timestamp};
use tidegate_redis::RedisStore;

use super::strategy::{SCOPES, StrategyLimit};
use crate::clock::seconds_of;

/// How often the next free unit is looked for, if others change the usage meanwhile.
const ATTEMPTS: usize = 3;

/// A store, and the time if it is not the store's own.
pub(super) struct TimedStore {
    pub(super) store: Store,
    pub(super) at: Option<Timestamp>,
}

impl TimedStore {
    fn request<'a>(&self, charges: &'a [Charge<'a>]) -> Request<'a> {
        let at = self.at;
        Request {
            at,
            ..Request::new(charges)
        }
    }

    /// The time. That of Redis is taken to be the system's.
    fn now(&self) -> Timestamp {
        match &self.store {
            Store::Memory(memory) => memory.now(),
            Store::Remote(_) => self.at.unwrap_or_else(|| SystemClock.now()),
        }
    }

    fn usage(&self, outcome: &Outcome) -> LimitUsage {
        let now = self.now();
        LimitUsage {
            is_allowed: outcome.allowed,
            used: outcome.limit - outcome.remaining,
            resets_at: outcome.reset_at,
            allowed_at: match outcome.retry {
                Retry::Now => outcome.at,
                // Counted from now: a denial may be remembered.
                Retry::After(wait) => now + wait,
                Retry::Never => outcome.reset_at,
            },
            now,
        }
    }

    async fn peek(&self, limit: &StrategyLimit, cost: u64) -> Result<LimitUsage, StoreError> {
        let asked = limit.charge(cost);
        let peeked = self.store.peek(&self.request(&asked)).await?;
        Ok(self.usage(&peeked[0]))
    }

    async fn charge(&self, limit: &StrategyLimit, cost: u64) -> Result<LimitUsage, StoreError> {
        let asked = limit.charge(cost);
        let charged = self.store.charge(&self.request(&asked)).await?;
        Ok(self.usage(&charged[0]))
    }

    fn unused(&self) -> LimitUsage {
        let now = self.now();
        LimitUsage {
            is_allowed: true,
            used: 0,
            resets_at: now,
            allowed_at: now,
            now,
        }
    }
}

/// What a call asks for.
#[derive(Clone)]
pub(super) enum LimitsStep {
    /// Nothing was counted under this key.
    Unused,
    /// Counts, whether or not it is within the limit.
    Count {
        limit: StrategyLimit,
        cost: u64,
    },
    /// Charges if it is within the limit.
    Charge {
        limit: StrategyLimit,
        cost: u64,
    },
    /// Answers as a charge would.
    Peek {
        limit: StrategyLimit,
        cost: u64,
    },
    /// When the usage will be less by one.
    NextFree {
        limit: StrategyLimit,
        used: Option<u64>,
    },
    Forget(Vec<StrategyLimit>),
    /// Forgets all keys of all strategies.
    Reset,
}

pub(super) enum LimitsAnswer {
    Usage(LimitUsage),
    Forgotten(u64),
    Nothing,
}

/// The usage of a key under a limit.
pub(super) struct LimitUsage {
    is_allowed: bool,
    used: u64,
    pub(super) resets_at: Timestamp,
    allowed_at: Timestamp,
    now: Timestamp,
}

impl LimitsAnswer {
    /// A usage is whether the cost is allowed, the usage, when all will be free, when the cost will be allowed, and the
    /// time now.
    pub(super) fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Usage(usage) => {
                let [resets_at, allowed_at, now] = [usage.resets_at, usage.allowed_at, usage.now]
                    .map(|at| seconds_of(Micros::new(at.as_micros())));
                (usage.is_allowed, usage.used, resets_at, allowed_at, now).into_py_any(py)
            }
            Self::Forgotten(count) => count.into_py_any(py),
            Self::Nothing => Ok(py.None()),
        }
    }
}

impl LimitsStep {
    /// Performs it. A store in memory answers at the first poll.
    pub(super) async fn perform(&self, store: &TimedStore) -> Result<LimitsAnswer, StoreError> {
        let usage = match self {
            Self::Unused => store.unused(),
            Self::Count { limit, cost } => count(store, limit, *cost).await?,
            Self::Charge { limit, cost } => store.charge(limit, *cost).await?,
            Self::Peek { limit, cost } => store.peek(limit, *cost).await?,
            Self::NextFree { limit, used } => next_free(store, limit, *used).await?,
            Self::Forget(limits) => {
                for limit in limits {
                    limit.forget(&store.store).await?;
                }
                return Ok(LimitsAnswer::Nothing);
            }
            Self::Reset => return Ok(LimitsAnswer::Nothing),
        };
        Ok(LimitsAnswer::Usage(usage))
    }

    /// The same in Redis, which can be reset.
    pub(super) async fn perform_in_redis(
        &self,
        redis: &RedisStore,
        at: Option<Timestamp>,
    ) -> Result<LimitsAnswer, StoreError> {
        if let Self::Reset = self {
            let forgotten = redis.forget_scopes(SCOPES).await;
            return forgotten.map(LimitsAnswer::Forgotten);
        }
        let store = Store::from(redis.clone());
        self.perform(&TimedStore { store, at }).await
    }
}

/// Counts a hit. What is beyond all that can be counted is answered, and not kept.
async fn count(
    store: &TimedStore,
    limit: &StrategyLimit,
    cost: u64,
) -> Result<LimitUsage, StoreError> {
    let mut usage = store.charge(limit, cost).await?;
    if !usage.is_allowed {
        let asked = limit.charge(cost);
        let settled = store.store.settle(&store.request(&asked)).await?;
        usage.used = usage.used.saturating_add(cost);
        usage.resets_at = settled[0].reset_at;
    }
    Ok(usage)
}

/// The usage, and when it will be less by one. An amount of one more than is free is denied until then.
async fn next_free(
    store: &TimedStore,
    limit: &StrategyLimit,
    used: Option<u64>,
) -> Result<LimitUsage, StoreError> {
    let mut known = used.unwrap_or(0);
    if used.is_none() {
        let usage = store.peek(limit, 0).await?;
        if usage.used == 0 {
            return Ok(usage);
        }
        known = usage.used;
    }
    let mut attempts = 0;
    loop {
        let beyond = MAX_COUNT - known.min(MAX_COUNT) + 1;
        let usage = store.peek(limit, beyond).await?;
        attempts += 1;
        if usage.used == known || usage.used == 0 || attempts == ATTEMPTS {
            return Ok(usage);
        }
        known = usage.used;
    }
}
