//! `Permit`: permission to go on, and what is held under concurrency limits until it is released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tidegate::PermitId;

use crate::decision::PyDecision;
use crate::gate::GateCore;
use crate::limiter_core::LimiterCore;
use crate::runtime::{Mailbox, PendingCall};

/// Who releases a permit.
#[derive(Clone)]
pub(crate) enum PermitHolder {
    Limiter(Arc<LimiterCore>),
    Gate(Arc<GateCore>),
}

/// What can be done with a permit.
#[derive(Clone, Copy)]
pub(crate) enum PermitStep {
    Release,
    Renew,
}

/// Permission to go on: a context manager that releases at its end.
///
/// Under a concurrency limit it is held until it is released, or until the limit's `lease_ttl` has passed. Under other
/// limits there is nothing to release.
///
/// >>> from tidegate import Limit, Limiter
/// >>> limiter = Limiter(Limit.concurrent(1))
/// >>> with limiter.acquire("worker") as permit:
/// ...     permit.decision.remaining
/// 0
/// >>> limiter.peek("worker").remaining
/// 1
#[pyclass(name = "Permit", module = "tidegate", frozen)]
pub(crate) struct PyPermit {
    holder: PermitHolder,
    id: Option<PermitId>,
    decision: Py<PyDecision>,
    is_released: AtomicBool,
}

impl PyPermit {
    pub(crate) fn new(
        holder: PermitHolder,
        id: Option<PermitId>,
        decision: Py<PyDecision>,
    ) -> Self {
        Self {
            holder,
            id,
            decision,
            is_released: AtomicBool::new(false),
        }
    }

    /// The permit, unless it was released.
    fn held(&self) -> Option<PermitId> {
        self.id
            .filter(|_| !self.is_released.load(Ordering::Relaxed))
    }

    /// The permit that is still to be released, which is then released.
    fn take(&self) -> Option<PermitId> {
        let id = self.id?;
        (!self.is_released.swap(true, Ordering::Relaxed)).then_some(id)
    }

    fn step(&self, py: Python<'_>, step: PermitStep, id: PermitId) -> PyResult<bool> {
        match &self.holder {
            PermitHolder::Limiter(limiter) => limiter.with_permit(py, step, id),
            PermitHolder::Gate(gate) => gate.with_permit(py, step, id),
        }
    }

    fn begin_step(
        &self,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        step: PermitStep,
        id: PermitId,
    ) -> PyResult<PendingCall> {
        match &self.holder {
            PermitHolder::Limiter(limiter) => limiter.begin_with_permit(mailbox, number, step, id),
            PermitHolder::Gate(gate) => gate.begin_with_permit(mailbox, number, step, id),
        }
    }
}

#[pymethods]
impl PyPermit {
    /// The answer of the limits.
    ///
    /// >>> from tidegate import Limiter
    /// >>> Limiter("3/minute").acquire("user_42").decision.remaining
    /// 2
    #[getter]
    fn decision(&self, py: Python<'_>) -> Py<PyDecision> {
        self.decision.clone_ref(py)
    }

    /// Its id, which is `lease` in the HTTP API; none if nothing is held.
    ///
    /// >>> from tidegate import Limit, Limiter
    /// >>> len(Limiter(Limit.concurrent(1)).acquire("worker").id)
    /// 32
    #[getter]
    fn id(&self) -> Option<String> {
        self.id.map(|id| id.to_string())
    }

    /// Releases what is held. False if there is nothing, or if it has ended before.
    ///
    /// >>> from tidegate import Limit, Limiter
    /// >>> permit = Limiter(Limit.concurrent(1)).acquire("worker")
    /// >>> permit.release(), permit.release()
    /// (True, False)
    fn release(&self, py: Python<'_>) -> PyResult<bool> {
        match self.take() {
            Some(id) => self.step(py, PermitStep::Release, id),
            None => Ok(false),
        }
    }

    /// Holds on for another whole `lease_ttl`: for work that may take longer. False if there is nothing, or if it has
    /// ended.
    ///
    /// >>> from tidegate import Limit, Limiter
    /// >>> with Limiter(Limit.concurrent(1)).acquire("worker") as permit:
    /// ...     permit.renew()
    /// True
    fn renew(&self, py: Python<'_>) -> PyResult<bool> {
        match self.held() {
            Some(id) => self.step(py, PermitStep::Renew, id),
            None => Ok(false),
        }
    }

    fn __enter__(permit: Py<Self>) -> Py<Self> {
        permit
    }

    /// A store that cannot be asked ends the permit by itself.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        match self.release(py) {
            Err(error) if !error.is_instance_of::<crate::errors::StoreFailed>(py) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Begins to release or renew in the native thread. None if there is nothing to do, or it is done.
    fn _begin(
        &self,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        renew: bool,
    ) -> PyResult<Option<PendingCall>> {
        let (step, id) = if renew {
            (PermitStep::Renew, self.held())
        } else {
            (PermitStep::Release, self.take())
        };
        id.map(|id| self.begin_step(mailbox, number, step, id))
            .transpose()
    }

    /// Whether its store is behind a network.
    #[getter]
    fn _is_remote(&self) -> bool {
        match &self.holder {
            PermitHolder::Limiter(limiter) => limiter.is_remote(),
            PermitHolder::Gate(gate) => gate.is_remote(),
        }
    }

    /// Whether there is something that is still to be released.
    #[getter]
    fn _is_held(&self) -> bool {
        self.held().is_some()
    }

    /// Releases without waiting, for what was acquired after its task was cancelled.
    fn _abandon(&self, py: Python<'_>) {
        if let Some(id) = self.take() {
            match &self.holder {
                PermitHolder::Limiter(limiter) => limiter.abandon(py, id),
                PermitHolder::Gate(gate) => gate.abandon(py, id),
            }
        }
    }

    fn __repr__(&self) -> String {
        let held = if self.id.is_none() {
            "nothing held"
        } else if self.is_released.load(Ordering::Relaxed) {
            "released"
        } else {
            "held"
        };
        format!("<Permit: {held}>")
    }
}
