//! Waiting for a turn. In memory the thread or the event loop of Python waits, and every step is made with the interpreter
//! held; over Redis the runtime waits.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidegate::{AcquireError, LimiterDecision, ReservedTurn, Turn};

use crate::clock::Seconds;
use crate::decision::PyDecision;
use crate::errors::{RateLimited, store_error};
use crate::freed::WaitingThread;
use crate::limiter_core::{LimiterCore, LimiterCounters};
use crate::permit::PyPermit;
use crate::runtime::{self, LOOK_EVERY};

/// For how long a call may wait: `timeout`, and never longer than the limiter's `max_wait`.
pub(crate) fn max_wait(core: &LimiterCore, timeout: Option<Seconds>) -> Duration {
    timeout.map_or(core.max_wait, |timeout| core.max_wait.min(timeout.into()))
}

/// Waits until a key may go on.
pub(crate) fn acquire(
    py: Python<'_>,
    core: &Arc<LimiterCore>,
    key: &str,
    cost: u64,
    timeout: Option<Seconds>,
) -> PyResult<PyPermit> {
    let max_wait = max_wait(core, timeout);
    match &core.counters {
        LimiterCounters::Memory(_, counters) => {
            let deadline = now() + max_wait;
            loop {
                // Listening before asking, so that a permit that is released in between is noticed.
                let waiting = core.holds_permits().then(|| counters.freed.thread());
                let left = deadline.saturating_duration_since(now());
                let (turn, wait) = reserve(py, core, key, cost, left)?;
                let end = now() + Duration::from_secs_f64(wait);
                if let Some(turn) = turn {
                    sleep(py, end, None)?;
                    return turn.take(py);
                }
                sleep(py, end, waiting)?;
            }
        }
        LimiterCounters::Redis(redis) => {
            let answer = runtime::block_on(py, redis.acquire(py, key, cost, max_wait)?)?;
            acquired(py, core, answer)
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "for how long a thread has waited"
)]
fn now() -> Instant {
    Instant::now()
}

/// Waits without the interpreter until `end`, or until a permit is released. A signal whose handler raises ends it.
fn sleep(py: Python<'_>, end: Instant, waiting: Option<WaitingThread<'_>>) -> PyResult<()> {
    // Without anything to wait for it never receives.
    let (_sender, mut nothing) = channel();
    let mut waiting = waiting;
    loop {
        let left = end.saturating_duration_since(now());
        if left.is_zero() {
            return Ok(());
        }
        let receiver = match &mut waiting {
            Some(waiting) => &mut waiting.receiver,
            None => &mut nothing,
        };
        match py.detach(move || receiver.recv_timeout(left.min(LOOK_EVERY))) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
        }
    }
}

/// A turn in memory that was reserved. Given back if it is not taken.
#[pyclass(name = "_Turn", module = "tidegate._native", frozen)]
pub(crate) struct PyTurn {
    turn: std::sync::Mutex<Option<ReservedTurn>>,
    core: Arc<LimiterCore>,
}

#[pymethods]
impl PyTurn {
    /// Takes the turn: what was charged stays charged.
    fn take(&self, py: Python<'_>) -> PyResult<PyPermit> {
        let turn = self.turn.lock().ok().and_then(|mut turn| turn.take());
        let Some(turn) = turn else {
            return Err(pyo3::exceptions::PyRuntimeError::new_err(
                "the turn was taken before",
            ));
        };
        let decision = turn.take().into_decision();
        permit(py, &self.core, decision)
    }

    /// Gives the turn back.
    fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        if let LimiterCounters::Memory(_, counters) = &self.core.counters {
            counters.clock.refresh(py)?;
            let turn = self.turn.lock().ok().and_then(|mut turn| turn.take());
            drop(turn);
            counters.freed.wake(py);
        }
        Ok(())
    }
}

/// One attempt to acquire in memory: a turn, and the seconds to wait before it is taken; or nothing, and the seconds
/// after which to ask again.
pub(crate) fn reserve(
    py: Python<'_>,
    core: &Arc<LimiterCore>,
    key: &str,
    cost: u64,
    max_wait: Duration,
) -> PyResult<(Option<PyTurn>, f64)> {
    let LimiterCounters::Memory(limiter, counters) = &core.counters else {
        return Err(pyo3::exceptions::PyTypeError::new_err(
            "the store is not in memory",
        ));
    };
    counters.clock.refresh(py)?;
    match limiter.reserve(key, cost, max_wait) {
        Ok(Turn::Reserved(turn)) => {
            let wait = turn.wait().as_secs_f64();
            let turn = PyTurn {
                turn: std::sync::Mutex::new(Some(turn)),
                core: Arc::clone(core),
            };
            Ok((Some(turn), wait))
        }
        Ok(Turn::AskAgain(wait)) => Ok((None, wait.as_secs_f64())),
        Err(error) => Err(refused(py, core, error)),
    }
}

/// The permit of what was acquired from Redis, or why there is none.
pub(crate) fn acquired(
    py: Python<'_>,
    core: &Arc<LimiterCore>,
    answer: Result<LimiterDecision, AcquireError>,
) -> PyResult<PyPermit> {
    match answer {
        Ok(decision) => permit(py, core, decision),
        Err(AcquireError::Store(error)) => {
            let decision = core.without_store(&error)?;
            if decision.allowed() {
                return core.permit(py, None, decision);
            }
            let message = "the store did not answer, and the limiter denies without it";
            Err(rate_limited(py, message.to_owned(), decision))
        }
        Err(error) => Err(refused(py, core, error)),
    }
}

fn permit(
    py: Python<'_>,
    core: &Arc<LimiterCore>,
    decision: LimiterDecision,
) -> PyResult<PyPermit> {
    let id = decision.permit();
    core.permit(py, id, core.decided(decision))
}

/// Why nothing was acquired.
fn refused(py: Python<'_>, core: &Arc<LimiterCore>, error: AcquireError) -> PyErr {
    let message = error.to_string();
    match error {
        AcquireError::TooLong { decision, .. } | AcquireError::Never(decision) => {
            rate_limited(py, message, core.decided(decision))
        }
        AcquireError::Store(error) => store_error(&error),
        _ => RateLimited::new_err(message),
    }
}

fn rate_limited(py: Python<'_>, message: String, decision: PyDecision) -> PyErr {
    let retry_after = decision.retry_after();
    match Py::new(py, decision) {
        Ok(decision) => RateLimited::new_err((message, decision, retry_after)),
        Err(error) => error,
    }
}
