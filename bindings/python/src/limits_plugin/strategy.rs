//! The strategies: how each counts, and where.

use std::sync::LazyLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate::limit::MAX_COUNT;
use tidegate::store::{Charge, Scope};
use tidegate::{Algorithm, Anchor, Limit, LimitError, Micros, Rate, Store, StoreError};

/// What the scopes of all strategies begin with.
pub(super) const SCOPES: &str = "limits.";

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

    pub(super) fn charge(&self, cost: u64) -> [Charge<'_>; 1] {
        [Charge {
            scope: self.scope,
            limit: &self.limit,
            key: &self.key,
            cost,
        }]
    }

    pub(super) async fn forget(&self, store: &Store) -> Result<(), StoreError> {
        store.forget(self.scope, &self.limit, &self.key).await
    }
}
