//! `Gate`: decides requests by rules. `AsyncGate` of Python uses the same object.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate::rules::RuleSet;
use tidegate::{Attributes, Clock as _, Decision, Gate, PermitId, StoreError};
use tokio::task::AbortHandle;

use crate::arguments::RequestCost;
use crate::clock::GivenClock;
use crate::decision::PyDecision;
use crate::errors::store_error;
use crate::explained;
use crate::permit::{PermitHolder, PermitStep};
use crate::rules_argument::{parse_rules, read_attributes, read_rules};
use crate::runtime::{self, Mailbox, PendingCall, PerProcess};
use crate::stores::{GivenStore, MemoryCounters, OpenedRedis, RedisHandle};

/// Decides requests by rules, in memory or Redis.
///
/// `rules` is the text of a rule file, or a list of rules as dictionaries. A gate does not fail: if Redis does not
/// answer, each rule's `on_store_failure` says what happens.
///
/// >>> from tidegate import Gate
/// >>> gate = Gate('''
/// ... rules:
/// ...   - {id: login, match: {path: /login}, per: [ip], limit: 1/minute}
/// ...   - {id: per-user, per: [user_id], limit: 100/minute}
/// ... ''')
/// >>> gate.check({"path": "/login", "ip": "203.0.113.7"}).rule
/// 'login'
/// >>> gate.check({"user_id": "u1"}).remaining
/// 99
#[pyclass(name = "Gate", module = "tidegate", frozen)]
pub(crate) struct PyGate(pub(crate) Arc<GateCore>);

/// What a gate is made of.
pub(crate) struct GateCore {
    counters: GateCounters,
}

/// Where a gate counts.
enum GateCounters {
    Memory(Arc<Gate>, MemoryCounters),
    Redis(RedisGate),
}

/// A gate over Redis, made in each process with the rules that were last given.
struct RedisGate {
    handle: Arc<RedisHandle>,
    clock: GivenClock,
    gate: Arc<PerProcess<MaintainedGate>>,
    rules: std::sync::Mutex<RuleSet>,
}

/// A gate, and the task that maintains it.
struct MaintainedGate {
    gate: Arc<Gate>,
    maintaining: AbortHandle,
}

impl Drop for MaintainedGate {
    fn drop(&mut self) {
        self.maintaining.abort();
    }
}

impl RedisGate {
    /// The same request, at the time of the clock if that is not the system's.
    fn at_its_time(&self, attributes: Attributes<'static>) -> Attributes<'static> {
        if self.clock.is_system() {
            return attributes;
        }
        attributes.at(self.clock.now())
    }

    fn open(&self, py: Python<'_>) -> PyResult<(Arc<OpenedRedis>, Arc<Gate>)> {
        self.clock.refresh(py)?;
        let redis = self.handle.open(py)?;
        let runtime = runtime::handle(py)?;
        let gate = self.gate.get(py, || {
            let rules = runtime::locked(&self.rules).clone();
            let store = redis.store_now();
            let gate = Arc::new(Gate::with_clock(store, rules, self.clock.clone()));
            let maintained = Arc::clone(&gate);
            let maintaining = runtime.spawn(async move { maintained.maintain().await });
            MaintainedGate {
                gate,
                maintaining: maintaining.abort_handle(),
            }
        });
        Ok((redis, Arc::clone(&gate.gate)))
    }
}

impl GateCore {
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.counters, GateCounters::Redis(_))
    }

    fn redis(&self) -> PyResult<&RedisGate> {
        match &self.counters {
            GateCounters::Redis(redis) => Ok(redis),
            GateCounters::Memory(..) => Err(PyTypeError::new_err(
                "the store is in memory and answers immediately",
            )),
        }
    }

    fn decided(self: &Arc<Self>, decision: Decision) -> PyDecision {
        PyDecision::of_gate(decision, || PermitHolder::Gate(Arc::clone(self)))
    }

    pub(crate) fn with_permit(
        &self,
        py: Python<'_>,
        step: PermitStep,
        id: PermitId,
    ) -> PyResult<bool> {
        let answer = match &self.counters {
            GateCounters::Memory(gate, counters) => {
                counters.clock.refresh(py)?;
                let answer = ready(step_of(gate, step, id));
                counters.freed.wake(py);
                answer.unwrap_or(Ok(false))
            }
            GateCounters::Redis(redis) => runtime::block_on(py, permit_call(redis, py, step, id)?)?,
        };
        answer.map_err(|error| store_error(&error))
    }

    pub(crate) fn begin_with_permit(
        &self,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        step: PermitStep,
        id: PermitId,
    ) -> PyResult<PendingCall> {
        let call = permit_call(self.redis()?, mailbox.py(), step, id)?;
        runtime::begin_call(mailbox, number, call, |py, answer| {
            let is_done = answer.map_err(|error| store_error(&error))?;
            Ok(is_done.into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }

    /// Releases without waiting for the answer.
    pub(crate) fn abandon(&self, py: Python<'_>, id: PermitId) {
        match &self.counters {
            GateCounters::Memory(..) => {
                let _ = self.with_permit(py, PermitStep::Release, id);
            }
            GateCounters::Redis(redis) => {
                if let Ok(call) = permit_call(redis, py, PermitStep::Release, id)
                    && let Ok(runtime) = runtime::handle(py)
                {
                    runtime.spawn(call);
                }
            }
        }
    }

    /// The gate of this process, for the middleware.
    pub(crate) fn gate(&self, py: Python<'_>) -> PyResult<GateInUse<'_>> {
        match &self.counters {
            GateCounters::Memory(gate, counters) => {
                counters.clock.refresh(py)?;
                Ok(GateInUse::Memory(gate))
            }
            GateCounters::Redis(redis) => {
                let (redis, gate) = redis.open(py)?;
                Ok(GateInUse::Redis(redis, gate))
            }
        }
    }
}

/// The gate of this process.
pub(crate) enum GateInUse<'g> {
    /// Decides immediately, with the interpreter held.
    Memory(&'g Arc<Gate>),
    /// Decides on the runtime, once the store has had its time to connect.
    Redis(Arc<OpenedRedis>, Arc<Gate>),
}

async fn step_of(gate: &Gate, step: PermitStep, id: PermitId) -> Result<bool, StoreError> {
    match step {
        PermitStep::Release => gate.release(id).await,
        PermitStep::Renew => gate.renew(id).await,
    }
}

fn permit_call(
    redis: &RedisGate,
    py: Python<'_>,
    step: PermitStep,
    id: PermitId,
) -> PyResult<impl Future<Output = Result<bool, StoreError>> + Send + 'static> {
    let (_, gate) = redis.open(py)?;
    Ok(async move { step_of(&gate, step, id).await })
}

/// The answer of a call in memory, which is ready when it is first polled.
pub(crate) fn ready<T>(call: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(call).poll(&mut context) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    }
}

impl PyGate {
    fn build(
        rules: RuleSet,
        store: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let counters = match GivenStore::read(store, GivenClock::read(clock)?)? {
            GivenStore::Memory(counters) => {
                let clock = counters.clock.clone();
                let gate = Gate::with_clock(Arc::clone(&counters.store), rules, clock);
                GateCounters::Memory(Arc::new(gate), counters)
            }
            GivenStore::Redis(handle, clock) => {
                let gate = Arc::new(PerProcess::new());
                handle.close_too(&gate);
                let rules = std::sync::Mutex::new(rules);
                GateCounters::Redis(RedisGate {
                    handle,
                    clock,
                    gate,
                    rules,
                })
            }
        };
        Ok(Self(Arc::new(GateCore { counters })))
    }
}

#[pymethods]
impl PyGate {
    #[new]
    #[pyo3(signature = (rules, *, store=None, clock=None))]
    fn new(
        rules: &Bound<'_, PyAny>,
        store: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Self::build(read_rules(rules)?, store, clock)
    }

    /// A gate with the rules of a file.
    ///
    /// >>> import tempfile
    /// >>> from tidegate import Gate
    /// >>> with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
    /// ...     _ = file.write("rules: [{id: all, per: [], limit: 10/minute}]")
    /// ...     file.flush()
    /// ...     gate = Gate.from_file(file.name)
    /// >>> gate.check({}).remaining
    /// 9
    #[staticmethod]
    #[pyo3(signature = (path, *, store=None, clock=None))]
    fn from_file(
        py: Python<'_>,
        path: PathBuf,
        store: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let text = std::fs::read_to_string(&path)?;
        let rules = parse_rules(py, &path.to_string_lossy(), &text)?;
        Self::build(rules, store, clock)
    }

    /// Decides a request by what is known of it: names and values, such as `ip`, `path`, `method` and `user_id`.
    ///
    /// >>> from tidegate import Gate
    /// >>> gate = Gate([{"id": "per-user", "per": ["user_id"], "limit": "10/minute"}])
    /// >>> gate.check({"user_id": "u1"}, cost=4).remaining
    /// 6
    #[pyo3(signature = (attributes, cost=RequestCost::ONE), text_signature = "($self, attributes, cost=1)")]
    fn check(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyAny>,
        cost: RequestCost,
    ) -> PyResult<PyDecision> {
        let attributes = read_attributes(attributes, cost)?;
        let decision = match &self.0.counters {
            GateCounters::Memory(gate, counters) => {
                counters.clock.refresh(py)?;
                gate.try_decide(&attributes)
                    .map_err(|error| PyTypeError::new_err(error.to_string()))?
            }
            GateCounters::Redis(redis) => {
                runtime::block_on(py, check_call(redis, py, attributes)?)?
            }
        };
        Ok(self.0.decided(decision))
    }

    /// Puts other rules in force, all of them in one step. What was used stays used.
    ///
    /// >>> from tidegate import Gate
    /// >>> gate = Gate("rules: [{id: all, per: [], limit: 10/minute}]")
    /// >>> gate.check({}).remaining
    /// 9
    /// >>> gate.replace("rules: [{id: all, per: [], limit: 20/minute}]")
    /// >>> gate.check({}).remaining
    /// 18
    fn replace(&self, py: Python<'_>, rules: &Bound<'_, PyAny>) -> PyResult<()> {
        let rules = read_rules(rules)?;
        match &self.0.counters {
            GateCounters::Memory(gate, counters) => {
                counters.clock.refresh(py)?;
                gate.replace_rules(rules);
            }
            GateCounters::Redis(redis) => {
                *runtime::locked(&redis.rules) = rules.clone();
                let (_, gate) = redis.open(py)?;
                gate.replace_rules(rules);
            }
        }
        Ok(())
    }

    /// Why a request would be allowed or denied: for each rule whether it applies and why not, what it grants and what its
    /// limits would answer. Nothing is charged.
    ///
    /// >>> from tidegate import Gate
    /// >>> gate = Gate("rules: [{id: writes, match: {method: POST}, per: [], limit: 1/minute}]")
    /// >>> gate.explain({"method": "GET"})["rules"][0]["failed"]
    /// {'condition': 'method', 'expected': 'POST', 'actual': 'GET'}
    fn explain<'py>(
        &self,
        py: Python<'py>,
        attributes: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let attributes = read_attributes(attributes, RequestCost::ONE)?;
        let explanation = match &self.0.counters {
            GateCounters::Memory(gate, counters) => {
                counters.clock.refresh(py)?;
                let show = |_: &str, value: &str| value.to_owned();
                ready(gate.explain(&attributes, &show))
                    .ok_or_else(|| PyTypeError::new_err("the store in memory did not answer"))?
            }
            GateCounters::Redis(redis) => {
                runtime::block_on(py, explain_call(redis, py, attributes)?)?
            }
        };
        let decision = self.0.decided(explanation.decision().clone());
        explained::as_dict(py, &explanation, decision)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let count = match &self.0.counters {
            GateCounters::Memory(gate, counters) => {
                counters.clock.refresh(py)?;
                gate.rules().len()
            }
            GateCounters::Redis(redis) => runtime::locked(&redis.rules).len(),
        };
        Ok(format!("<Gate: {count} rules>"))
    }

    /// Whether its store is behind a network.
    #[getter]
    fn _is_remote(&self) -> bool {
        self.0.is_remote()
    }

    /// Begins `check` in the native thread.
    fn _begin_check(
        &self,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        attributes: &Bound<'_, PyAny>,
        cost: RequestCost,
    ) -> PyResult<PendingCall> {
        let attributes = read_attributes(attributes, cost)?;
        let (call, core) = (
            check_call(self.0.redis()?, mailbox.py(), attributes)?,
            Arc::clone(&self.0),
        );
        runtime::begin_call(mailbox, number, call, move |py, decision| {
            Ok(Py::new(py, core.decided(decision))?.into_any())
        })
    }

    /// Begins `explain` in the native thread.
    fn _begin_explain(
        &self,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        attributes: &Bound<'_, PyAny>,
    ) -> PyResult<PendingCall> {
        let attributes = read_attributes(attributes, RequestCost::ONE)?;
        let (call, core) = (
            explain_call(self.0.redis()?, mailbox.py(), attributes)?,
            Arc::clone(&self.0),
        );
        runtime::begin_call(mailbox, number, call, move |py, explanation| {
            let decision = core.decided(explanation.decision().clone());
            Ok(explained::as_dict(py, &explanation, decision)?
                .into_any()
                .unbind())
        })
    }
}

fn check_call(
    redis: &RedisGate,
    py: Python<'_>,
    attributes: Attributes<'static>,
) -> PyResult<impl Future<Output = Decision> + Send + 'static> {
    let (opened, gate) = redis.open(py)?;
    let attributes = redis.at_its_time(attributes);
    Ok(async move {
        opened.store().await;
        gate.decide(&attributes).await
    })
}

fn explain_call(
    redis: &RedisGate,
    py: Python<'_>,
    attributes: Attributes<'static>,
) -> PyResult<impl Future<Output = tidegate::gate::Explanation> + Send + 'static> {
    let (opened, gate) = redis.open(py)?;
    let attributes = redis.at_its_time(attributes);
    Ok(async move {
        opened.store().await;
        let show = |_: &str, value: &str| value.to_owned();
        gate.explain(&attributes, &show).await
    })
}
