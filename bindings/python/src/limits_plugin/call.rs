//! Calls of storages, made in this thread or for an event loop.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::{Clock as _, Store, StoreError, Timestamp};

use super::steps::{LimitsAnswer, LimitsStep, TimedStore};
use super::windows::CounterWindows;
use crate::clock::GivenClock;
use crate::errors;
use crate::runtime::{self, Mailbox, PendingCall, locked};
use crate::stores::{MemoryCounters, RedisHandle};

/// Counters in memory or Redis.
pub(super) struct CountersInner {
    pub(super) store: CountersStore,
    /// The windows of keys that do not name theirs. The locks are held with the interpreter, so that they are free when
    /// the process forks.
    pub(super) windows: Mutex<CounterWindows>,
}

pub(super) enum CountersStore {
    /// Replaced as a whole by a reset.
    Memory(Mutex<MemoryCounters>),
    /// With a clock other than the system's, requests bring its time.
    Redis(Arc<RedisHandle>, GivenClock),
}

/// A call of a storage that was not made yet.
#[pyclass(module = "tidegate._native", frozen)]
pub(crate) struct LimitsCall {
    pub(super) counters: Arc<CountersInner>,
    pub(super) step: LimitsStep,
}

#[pymethods]
impl LimitsCall {
    /// Makes the call, and waits for its answer.
    fn now(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let counters = match &self.counters.store {
            CountersStore::Memory(counters) => counters,
            CountersStore::Redis(handle, clock) => {
                let answer = runtime::block_on(py, self.in_redis(py, handle, clock)?)?;
                return self.counters.opened(py, &self.step, answer);
            }
        };
        // Code of Python runs in `refresh`: no lock is held there.
        let MemoryCounters { store, clock, .. } = locked(counters).clone();
        clock.refresh(py)?;
        if matches!(self.step, LimitsStep::Reset) {
            locked(&self.counters.windows).clear();
            store.sweep();
            let stats = store.stats();
            *locked(counters) = MemoryCounters::new(clock, stats.max_keys);
            return LimitsAnswer::Forgotten(stats.keys as u64).into_object(py);
        }
        let store = TimedStore {
            store: Store::Memory(store),
            at: None,
        };
        let answer = ready(self.step.perform(&store))?;
        self.counters.opened(py, &self.step, answer)
    }

    /// Makes the call for an event loop. For counters in Redis.
    fn begin(&self, mailbox: &Bound<'_, Mailbox>, number: u64) -> PyResult<PendingCall> {
        let CountersStore::Redis(handle, clock) = &self.counters.store else {
            return Err(PyRuntimeError::new_err("counters in memory answer now"));
        };
        let (counters, asked) = (Arc::clone(&self.counters), self.step.clone());
        runtime::begin_call(
            mailbox,
            number,
            self.in_redis(mailbox.py(), handle, clock)?,
            move |py, answer| counters.opened(py, &asked, answer),
        )
    }
}

impl LimitsCall {
    fn in_redis(
        &self,
        py: Python<'_>,
        handle: &RedisHandle,
        clock: &GivenClock,
    ) -> PyResult<impl Future<Output = Result<LimitsAnswer, StoreError>> + Send + 'static> {
        clock.refresh(py)?;
        let at = (!clock.is_system()).then(|| clock.now());
        let (opened, step) = (handle.open(py)?, self.step.clone());
        Ok(async move { step.perform_in_redis(opened.store().await, at).await })
    }
}

impl CountersInner {
    /// The time, to find out whether a window is still open.
    pub(super) fn now(&self) -> Timestamp {
        match &self.store {
            CountersStore::Memory(counters) => locked(counters).clock.now(),
            CountersStore::Redis(_, clock) => clock.now(),
        }
    }

    /// The answer of a step as an object of Python.
    fn opened(
        &self,
        py: Python<'_>,
        step: &LimitsStep,
        answer: Result<LimitsAnswer, StoreError>,
    ) -> PyResult<Py<PyAny>> {
        let answer = answer.map_err(|error| errors::store_error(&error))?;
        match (step, &answer) {
            (LimitsStep::Count { limit, .. }, LimitsAnswer::Usage(usage)) => {
                locked(&self.windows).counted_in(limit, usage.resets_at);
            }
            (LimitsStep::Reset, _) => locked(&self.windows).clear(),
            _ => {}
        }
        answer.into_object(py)
    }
}

/// The output of a future that never waits, such as that of a call to a store in memory.
fn ready<T>(future: impl Future<Output = T>) -> PyResult<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(PyRuntimeError::new_err("counters in memory did not answer")),
    }
}
