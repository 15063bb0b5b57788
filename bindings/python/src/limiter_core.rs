//! What a limiter is made of: its limits, where it counts, and what happens if that does not answer.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tidegate::{
    Clock as _, Limit, Limiter, LimiterDecision, PermitId, StoreError, SystemClock, Timestamp,
};

use crate::decision::PyDecision;
use crate::errors::store_error;
use crate::permit::{PermitHolder, PermitStep, PyPermit};
use crate::runtime::{self, Mailbox, PendingCall};
use crate::shared_limiter::{LimiterQuestion, RedisCounters};
use crate::stores::MemoryCounters;

/// What a limiter is made of.
pub(crate) struct LimiterCore {
    pub(crate) counters: LimiterCounters,
    pub(crate) limits: Arc<[Limit]>,
    pub(crate) max_wait: Duration,
    pub(crate) on_failure: OnFailure,
}

/// Where a limiter counts.
pub(crate) enum LimiterCounters {
    Memory(Limiter, MemoryCounters),
    Redis(RedisCounters),
}

/// What happens if the store does not answer.
#[derive(Clone, Copy)]
pub(crate) enum OnFailure {
    Raise,
    Allow,
    Deny,
}

impl OnFailure {
    pub(crate) fn read(name: &str) -> PyResult<Self> {
        match name {
            "raise" => Ok(Self::Raise),
            "allow" => Ok(Self::Allow),
            "deny" => Ok(Self::Deny),
            _ => Err(PyValueError::new_err(format!(
                "`on_store_failure` is `{name}`; expected one of `raise`, `allow`, `deny`"
            ))),
        }
    }
}

impl LimiterCore {
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.counters, LimiterCounters::Redis(_))
    }

    /// Whether a request holds something until it is released.
    pub(crate) fn holds_permits(&self) -> bool {
        self.limits.iter().any(Limit::is_concurrency)
    }

    fn holder(self: &Arc<Self>) -> PermitHolder {
        PermitHolder::Limiter(Arc::clone(self))
    }

    /// A decision as an object.
    #[inline]
    pub(crate) fn decided(self: &Arc<Self>, decision: LimiterDecision) -> PyDecision {
        PyDecision::of_limiter(&self.limits, decision, || self.holder())
    }

    /// The same, of a store that may not have answered.
    pub(crate) fn answered(
        self: &Arc<Self>,
        answer: Result<LimiterDecision, StoreError>,
    ) -> PyResult<PyDecision> {
        match answer {
            Ok(decision) => Ok(self.decided(decision)),
            Err(error) => self.without_store(&error),
        }
    }

    /// The answer if the store gave none.
    pub(crate) fn without_store(&self, error: &StoreError) -> PyResult<PyDecision> {
        let unknown = |is_allowed| PyDecision::unknown(&self.limits, is_allowed, real_time());
        match self.on_failure {
            OnFailure::Raise => Err(store_error(error)),
            OnFailure::Allow => Ok(unknown(true)),
            OnFailure::Deny => Ok(unknown(false)),
        }
    }

    /// A permit with a decision.
    pub(crate) fn permit(
        self: &Arc<Self>,
        py: Python<'_>,
        id: Option<PermitId>,
        decision: PyDecision,
    ) -> PyResult<PyPermit> {
        let decision = Py::new(py, decision)?;
        Ok(PyPermit::new(self.holder(), id, decision))
    }

    pub(crate) fn ask(
        self: &Arc<Self>,
        py: Python<'_>,
        asked: LimiterQuestion,
        key: &str,
        cost: u64,
    ) -> PyResult<PyDecision> {
        match &self.counters {
            LimiterCounters::Memory(limiter, counters) => {
                counters.clock.refresh(py)?;
                Ok(self.decided(match asked {
                    LimiterQuestion::Check => limiter.check_cost(key, cost),
                    LimiterQuestion::Peek => limiter.peek_cost(key, cost),
                    LimiterQuestion::Settle => limiter.settle(key, cost),
                }))
            }
            LimiterCounters::Redis(redis) => {
                let answer = runtime::block_on(py, redis.ask(py, asked, key, cost)?)?;
                self.answered(answer)
            }
        }
    }

    pub(crate) fn with_permit(
        &self,
        py: Python<'_>,
        step: PermitStep,
        id: PermitId,
    ) -> PyResult<bool> {
        match &self.counters {
            LimiterCounters::Memory(limiter, counters) => {
                counters.clock.refresh(py)?;
                Ok(match step {
                    PermitStep::Renew => limiter.renew(id),
                    PermitStep::Release => {
                        let was_held = limiter.release(id);
                        counters.freed.wake(py);
                        was_held
                    }
                })
            }
            LimiterCounters::Redis(redis) => {
                let answer = runtime::block_on(py, redis.with_permit(py, step, id)?)?;
                self.done(answer)
            }
        }
    }

    /// Whether something was done, by a store that may not have answered.
    pub(crate) fn done(&self, answer: Result<bool, StoreError>) -> PyResult<bool> {
        match (answer, self.on_failure) {
            (Ok(is_done), _) => Ok(is_done),
            (Err(error), OnFailure::Raise) => Err(store_error(&error)),
            (Err(_), OnFailure::Allow | OnFailure::Deny) => Ok(false),
        }
    }

    pub(crate) fn begin_with_permit(
        self: &Arc<Self>,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        step: PermitStep,
        id: PermitId,
    ) -> PyResult<PendingCall> {
        let (py, core) = (mailbox.py(), Arc::clone(self));
        let call = self.redis()?.with_permit(py, step, id)?;
        runtime::begin_call(mailbox, number, call, move |py, answer| {
            Ok(core
                .done(answer)?
                .into_pyobject(py)?
                .to_owned()
                .into_any()
                .unbind())
        })
    }

    /// Releases without waiting for the answer.
    pub(crate) fn abandon(&self, py: Python<'_>, id: PermitId) {
        match &self.counters {
            LimiterCounters::Memory(..) => {
                let _ = self.with_permit(py, PermitStep::Release, id);
            }
            LimiterCounters::Redis(redis) => redis.abandon(py, id),
        }
    }

    pub(crate) fn redis(&self) -> PyResult<&RedisCounters> {
        match &self.counters {
            LimiterCounters::Redis(redis) => Ok(redis),
            LimiterCounters::Memory(..) => Err(PyTypeError::new_err(
                "the store is in memory and answers immediately",
            )),
        }
    }
}

fn real_time() -> Timestamp {
    SystemClock.now()
}
