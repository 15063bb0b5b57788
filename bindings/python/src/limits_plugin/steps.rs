//! The calls of storages and strategies, as charges of a store. The same for memory and Redis.

use std::sync::LazyLock;

use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate::limit::MAX_COUNT;
use tidegate::store::{Charge, Request, Scope};
use tidegate::{
    Algorithm, Anchor, Clock as _, Limit, LimitError, Micros, Outcome, Rate, Retry, Store,
    StoreError, SystemClock, Timestamp,
};
use tidegate_redis::RedisStore;

use crate::clock::seconds_of;

/// What the scopes of all strategies begin with.
pub(super) const SCOPES: &str = "limits.";

/// How often the next free unit is looked for, if others change the usage meanwhile.
const ATTEMPTS: usize = 3;

/// A strategy, of `limits` or of the plugin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    FixedWindow,
    MovingWindow,
    SlidingWindowCounter,
    TokenBucket,
    SlidingWindowLog,
}

/// Each strategy with its name, which is also that of its scope: no strategy meets what another one has written.
static STRATEGIES: LazyLock<[(Strategy, &str, Scope); 5]> = LazyLock::new(|| {
    [
        (Strategy::FixedWindow, "fixed-window"),
        (Strategy::MovingWindow, "moving-window"),
        (Strategy::SlidingWindowCounter, "sliding-window-counter"),
        (Strategy::TokenBucket, "token-bucket"),
        (Strategy::SlidingWindowLog, "sliding-window-log"),
    ]
    .map(|(strategy, name)| (strategy, name, Scope::new(&[SCOPES, name].concat())))
});

impl Strategy {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::FixedWindow => Algorithm::FixedWindow {
                anchor: Anchor::FirstRequest,
            },
            Self::MovingWindow | Self::SlidingWindowLog => Algorithm::SlidingWindowLog,
            Self::SlidingWindowCounter => Algorithm::SlidingWindowCounter,
            Self::TokenBucket => Algorithm::TOKEN_BUCKET,
        }
    }

    fn scope(self) -> &'static Scope {
        &STRATEGIES[self as usize].2
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Strategy {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let name = given.extract::<&str>()?;
        let known = STRATEGIES.iter().find(|(_, known, _)| *known == name);
        let strategy = known.map(|(strategy, ..)| *strategy);
        strategy.ok_or_else(|| PyValueError::new_err(format!("`{name}` is not a strategy")))
    }
}

/// A limit of `limits` under a strategy, and the key that it is asked for.
#[derive(Clone)]
pub(super) struct StrategyLimit {
    scope: &'static Scope,
    limit: Limit,
    window: Micros,
    key: Box<str>,
}

impl StrategyLimit {
    pub(super) fn new(
        strategy: Strategy,
        key: &str,
        amount: u64,
        window: Micros,
    ) -> Result<Self, LimitError> {
        Ok(Self {
            scope: strategy.scope(),
            limit: Limit::new(Rate::new(amount, window), strategy.algorithm())?,
            window,
            key: key.into(),
        })
    }

    /// The fixed window of a key, which counts as far as can be counted: the strategy compares.
    pub(super) fn fixed_window(key: &str, window: Micros) -> Result<Self, LimitError> {
        Self::new(Strategy::FixedWindow, key, MAX_COUNT, window)
    }

    /// The moving window of the same length, for the same key.
    pub(super) fn as_moving_window(&self) -> Result<Self, LimitError> {
        Self::new(Strategy::MovingWindow, &self.key, MAX_COUNT, self.window)
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn window(&self) -> Micros {
        self.window
    }

    fn charge(&self, cost: u64) -> [Charge<'_>; 1] {
        [Charge {
            scope: self.scope,
            limit: &self.limit,
            key: &self.key,
            cost,
        }]
    }

    async fn peek(&self, store: &Store, cost: u64) -> Result<LimitUsage, StoreError> {
        let peeked = store.peek(&Request::new(&self.charge(cost))).await?;
        Ok(LimitUsage::of(&peeked[0], store))
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
}

impl LimitUsage {
    fn of(outcome: &Outcome, store: &Store) -> Self {
        Self {
            is_allowed: outcome.allowed,
            used: outcome.limit - outcome.remaining,
            resets_at: outcome.reset_at,
            allowed_at: match outcome.retry {
                Retry::Now => outcome.at,
                // Counted from now: a denial may be remembered.
                Retry::After(wait) => now(store) + wait,
                Retry::Never => outcome.reset_at,
            },
        }
    }

    fn unused(now: Timestamp) -> Self {
        Self {
            is_allowed: true,
            used: 0,
            resets_at: now,
            allowed_at: now,
        }
    }
}

impl LimitsAnswer {
    /// A usage is whether the cost is allowed, the usage, when all will be free, and when the cost will be allowed.
    pub(super) fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Usage(usage) => {
                let times = [usage.resets_at, usage.allowed_at]
                    .map(|at| seconds_of(Micros::new(at.as_micros())));
                (usage.is_allowed, usage.used, times[0], times[1]).into_py_any(py)
            }
            Self::Forgotten(count) => count.into_py_any(py),
            Self::Nothing => Ok(py.None()),
        }
    }
}

impl LimitsStep {
    /// Performs it. A store in memory answers at the first poll.
    pub(super) async fn perform(&self, store: &Store) -> Result<LimitsAnswer, StoreError> {
        let usage = match self {
            Self::Unused => LimitUsage::unused(now(store)),
            Self::Count { limit, cost } => count(store, limit, *cost).await?,
            Self::Charge { limit, cost } => {
                let charged = store.charge(&Request::new(&limit.charge(*cost))).await?;
                LimitUsage::of(&charged[0], store)
            }
            Self::Peek { limit, cost } => limit.peek(store, *cost).await?,
            Self::NextFree { limit, used } => next_free(store, limit, *used).await?,
            Self::Forget(limits) => {
                for limit in limits {
                    store.forget(limit.scope, &limit.limit, &limit.key).await?;
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
        store: &RedisStore,
    ) -> Result<LimitsAnswer, StoreError> {
        match self {
            Self::Reset => store
                .forget_scopes(SCOPES)
                .await
                .map(LimitsAnswer::Forgotten),
            step => step.perform(&Store::from(store.clone())).await,
        }
    }
}

/// Counts a hit. What is beyond all that can be counted is answered, and not kept.
async fn count(store: &Store, limit: &StrategyLimit, cost: u64) -> Result<LimitUsage, StoreError> {
    let charges = limit.charge(cost);
    let charged = store.charge(&Request::new(&charges)).await?;
    let mut usage = LimitUsage::of(&charged[0], store);
    if !usage.is_allowed {
        let settled = store.settle(&Request::new(&charges)).await?;
        usage.used = usage.used.saturating_add(cost);
        usage.resets_at = settled[0].reset_at;
    }
    Ok(usage)
}

/// The usage, and when it will be less by one. An amount of one more than is free is denied until then.
async fn next_free(
    store: &Store,
    limit: &StrategyLimit,
    used: Option<u64>,
) -> Result<LimitUsage, StoreError> {
    let mut known = match used {
        Some(used) => used,
        None => {
            let usage = limit.peek(store, 0).await?;
            if usage.used == 0 {
                return Ok(usage);
            }
            usage.used
        }
    };
    let mut attempts = 0;
    loop {
        let usage = limit
            .peek(store, MAX_COUNT - known.min(MAX_COUNT) + 1)
            .await?;
        attempts += 1;
        if usage.used == known || usage.used == 0 || attempts == ATTEMPTS {
            return Ok(usage);
        }
        known = usage.used;
    }
}

/// The time by the clock of a store in memory; that of Redis is taken to be the system's.
fn now(store: &Store) -> Timestamp {
    match store {
        Store::Memory(memory) => memory.now(),
        Store::Remote(_) => SystemClock.now(),
    }
}
