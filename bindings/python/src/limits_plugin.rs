//! What the plugin of `limits` needs of the native module: counters for its strategies, in memory or Redis. The storages and
//! strategies themselves are in `python/tidegate/limits`.

mod call;
mod hit_number;
mod steps;
mod strategy;
mod windows;

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidegate::MemoryStore;
use tidegate::limit::MAX_COUNT;

use crate::arguments::KeyArgument;
use crate::clock::{GivenClock, Seconds};
use crate::runtime::locked;
use crate::stores::{GivenStore, MemoryCounters};
pub(crate) use call::LimitsCall;
use call::{CountersInner, CountersStore};
use hit_number::HitNumber;
use steps::LimitsStep;
use strategy::{Strategy, StrategyLimit};
use windows::{CounterWindows, ListedWindow};

mod classes {
    pyo3::import_exception!(limits.errors, ConfigurationError);
}

/// The counters of a storage of `limits`. Its methods prepare a call, which is made with `now` or `begin`.
#[pyclass(module = "tidegate._native", frozen)]
pub(crate) struct LimitsCounters(Arc<CountersInner>);

#[pymethods]
impl LimitsCounters {
    #[new]
    #[pyo3(signature = (store=None, clock=None))]
    fn new(store: Option<&Bound<'_, PyAny>>, clock: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let store = match GivenStore::read(store, GivenClock::read(clock)?)? {
            GivenStore::Memory(counters) => CountersStore::Memory(Mutex::new(counters)),
            GivenStore::Redis(handle, clock) => CountersStore::Redis(handle, clock),
        };
        Ok(Self::over(store, CounterWindows::default()))
    }

    /// The URL of Redis, without secrets; none in memory.
    #[getter]
    fn url(&self) -> Option<String> {
        match &self.0.store {
            CountersStore::Memory(_) => None,
            CountersStore::Redis(handle, _) => Some(handle.settings().url.to_string()),
        }
    }

    /// Adds to the fixed window of a key. Answers the usage as [`peek`](Self::peek) does.
    fn count(
        &self,
        key: KeyArgument<'_>,
        window: Seconds,
        cost: HitNumber,
    ) -> PyResult<LimitsCall> {
        let window = locked(&self.0.windows).to_count_in(key.0, window.0, || self.0.now());
        let limit = StrategyLimit::fixed_window(key.0, window.map_err(configuration_error)?);
        let step = LimitsStep::Count {
            limit: limit.map_err(configuration_error)?,
            cost: cost.0,
        };
        Ok(self.call(step))
    }

    /// The usage of the fixed window of a key.
    fn counted(&self, key: KeyArgument<'_>) -> PyResult<LimitsCall> {
        Ok(self.call(match self.fixed_window(key.0)? {
            Some(limit) => LimitsStep::Peek { limit, cost: 0 },
            None => LimitsStep::Unused,
        }))
    }

    /// Forgets what was counted for a key by `fixed-window` and `moving-window`.
    fn clear(&self, key: KeyArgument<'_>) -> PyResult<LimitsCall> {
        let Some(fixed) = self.fixed_window(key.0)? else {
            return Ok(self.call(LimitsStep::Unused));
        };
        let log = fixed.as_moving_window().map_err(configuration_error)?;
        Ok(self.call(LimitsStep::Forget(vec![fixed, log])))
    }

    /// Charges a cost to a key by a strategy, if its amount allows it. Answers as [`peek`](Self::peek) does.
    fn charge(
        &self,
        strategy: Strategy,
        key: KeyArgument<'_>,
        amount: HitNumber,
        window: Seconds,
        cost: HitNumber,
    ) -> PyResult<LimitsCall> {
        let limit = limit(strategy, key, amount, window)?;
        let cost = cost.0;
        Ok(self.call(LimitsStep::Charge { limit, cost }))
    }

    /// Answers whether a cost is allowed, the usage, when all of it will be free, when the cost will be allowed, and the
    /// time now.
    fn peek(
        &self,
        strategy: Strategy,
        key: KeyArgument<'_>,
        amount: HitNumber,
        window: Seconds,
        cost: HitNumber,
    ) -> PyResult<LimitsCall> {
        let limit = limit(strategy, key, amount, window)?;
        let cost = cost.0;
        Ok(self.call(LimitsStep::Peek { limit, cost }))
    }

    /// The usage of a key, and when it will be less by one. `used` is the usage, if it is known from a moment ago.
    #[pyo3(signature = (strategy, key, window, used=None))]
    fn next_free(
        &self,
        strategy: Strategy,
        key: KeyArgument<'_>,
        window: Seconds,
        used: Option<u64>,
    ) -> PyResult<LimitsCall> {
        let limit = limit(strategy, key, HitNumber(MAX_COUNT), window)?;
        Ok(self.call(LimitsStep::NextFree { limit, used }))
    }

    /// Forgets what was counted for a key by a strategy.
    fn forget(
        &self,
        strategy: Strategy,
        key: KeyArgument<'_>,
        window: Seconds,
    ) -> PyResult<LimitsCall> {
        let limit = limit(strategy, key, HitNumber(1), window)?;
        Ok(self.call(LimitsStep::Forget(vec![limit])))
    }

    /// Forgets all counters, and answers how many there were.
    fn reset(&self) -> LimitsCall {
        self.call(LimitsStep::Reset)
    }

    /// The state of counters in memory, for `pickle`.
    fn pickled<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Vec<ListedWindow>)> {
        let CountersStore::Memory(counters) = &self.0.store else {
            return Err(PyValueError::new_err("the counters are in Redis"));
        };
        let counters = locked(counters).clone();
        counters.clock.refresh(py)?;
        let mut snapshot = Vec::new();
        counters.store.snapshot(&mut snapshot)?;
        let windows = locked(&self.0.windows).listed();
        Ok((PyBytes::new(py, &snapshot), windows))
    }

    /// Counters with the state of others.
    #[staticmethod]
    #[pyo3(signature = (state, clock=None))]
    fn unpickled(
        py: Python<'_>,
        state: (Vec<u8>, Vec<ListedWindow>),
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let clock = GivenClock::read(clock)?;
        clock.refresh(py)?;
        let builder = MemoryStore::builder().clock(clock.clone());
        let (store, _) = builder
            .restore(&state.0[..])
            .map_err(|error| PyValueError::new_err(format!("the counters: {error}")))?;
        let counters = MemoryCounters {
            store: Arc::new(store),
            clock,
            freed: Arc::default(),
        };
        let store = CountersStore::Memory(Mutex::new(counters));
        Ok(Self::over(store, CounterWindows::from_list(state.1)))
    }
}

impl LimitsCounters {
    fn over(store: CountersStore, windows: CounterWindows) -> Self {
        let windows = Mutex::new(windows);
        Self(Arc::new(CountersInner { store, windows }))
    }

    fn call(&self, step: LimitsStep) -> LimitsCall {
        LimitsCall {
            counters: Arc::clone(&self.0),
            step,
        }
    }

    /// The fixed window of a key, if it is known.
    fn fixed_window(&self, key: &str) -> PyResult<Option<StrategyLimit>> {
        let window = locked(&self.0.windows).of(key);
        let limit = window.map(|window| StrategyLimit::fixed_window(key, window));
        limit.transpose().map_err(configuration_error)
    }
}

fn limit(
    strategy: Strategy,
    key: KeyArgument<'_>,
    amount: HitNumber,
    window: Seconds,
) -> PyResult<StrategyLimit> {
    let limit = StrategyLimit::new(strategy, key.0, amount.0, window.0);
    limit.map_err(configuration_error)
}

fn configuration_error(error: impl std::fmt::Display) -> PyErr {
    classes::ConfigurationError::new_err(error.to_string())
}
