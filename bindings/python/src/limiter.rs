//! `Limiter`: one or more limits for each key, in memory or Redis. `AsyncLimiter` of Python uses the same object.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate::Limiter;
use tidegate::rules::RuleSettings;

use crate::acquiring;
use crate::arguments::{KeyArgument, RequestCost};
use crate::clock::{GivenClock, Seconds};
use crate::decision::PyDecision;
use crate::errors::limit_error;
use crate::limit::{PyLimit, read_limits};
use crate::limiter_core::{LimiterCore, LimiterCounters, OnFailure};
use crate::permit::PyPermit;
use crate::runtime::{self, Mailbox, PendingCall};
use crate::shared_limiter::{LimiterQuestion, RedisCounters};
use crate::stores::GivenStore;

/// Limits requests by key: all limits allow a request, or none is charged.
///
/// `limits` is a text such as `100/minute burst 20; 5/second`, a `Limit` or a list of them. `store` is a `MemoryStore`,
/// a `RedisStore` or the URL of a Redis; without one it has memory of its own. Limiters with the same name, limits and
/// store share counters; over Redis also with the rule of that name of a server, which counts by `per_attribute` alone.
/// `max_wait` is for how many seconds `acquire` waits at the most. If Redis does not answer, `on_store_failure` is
/// `raise`, `allow` or `deny`. `clock` is the system's, a `ManualClock`, or `python` for that of `time.time`.
///
/// >>> from tidegate import Limiter
/// >>> limiter = Limiter("3/minute; 2/second")
/// >>> [limiter.allow("user_42") for _ in range(3)]
/// [True, True, False]
/// >>> limiter.check("user_43").remaining
/// 1
#[pyclass(name = "Limiter", module = "tidegate", frozen)]
pub(crate) struct PyLimiter(pub(crate) Arc<LimiterCore>);

#[pymethods]
impl PyLimiter {
    #[new]
    #[pyo3(signature = (limits, *, algorithm=None, store=None, name="limiter", max_wait=Seconds::TEN,
        on_store_failure="raise", clock=None, per_attribute="user_id"),
        text_signature = "(limits, *, algorithm=None, store=None, name='limiter', max_wait=10.0, on_store_failure='raise', clock=None, per_attribute='user_id')")]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        limits: &Bound<'_, PyAny>,
        algorithm: Option<&str>,
        store: Option<&Bound<'_, PyAny>>,
        name: &str,
        max_wait: Seconds,
        on_store_failure: &str,
        clock: Option<&Bound<'_, PyAny>>,
        per_attribute: &str,
    ) -> PyResult<Self> {
        let limits = read_limits(limits, algorithm)?;
        let on_failure = OnFailure::read(on_store_failure)?;
        if name.is_empty() {
            return Err(PyValueError::new_err(
                "`name` is empty; give at least one letter",
            ));
        }
        let clock = GivenClock::read(clock)?;
        let max_wait = Duration::from(max_wait);
        let builder = Limiter::builder_for(limits.clone()).max_wait(max_wait);
        let counters = match GivenStore::read(store, clock)? {
            GivenStore::Memory(counters) => {
                let builder = builder.clock(counters.clock.clone());
                let limiter = builder.build_in(name, Arc::clone(&counters.store));
                let limiter = limiter.map_err(|error| limit_error(&error))?;
                LimiterCounters::Memory(limiter, counters)
            }
            GivenStore::Redis(handle, clock) => {
                // Built in each process; here to report what is wrong with the limits.
                builder.build().map_err(|error| limit_error(&error))?;
                // As in rules: servers know a header by this name only, and whether it is secret.
                if per_attribute.starts_with("header.")
                    && per_attribute.bytes().any(|byte| byte.is_ascii_uppercase())
                {
                    return Err(PyValueError::new_err(format!(
                        "the names of headers are lower-case here; write `{}`",
                        per_attribute.to_ascii_lowercase()
                    )));
                }
                let is_secret = RuleSettings::default().is_secret(per_attribute);
                if is_secret && handle.settings().key_secret.is_none() {
                    return Err(PyValueError::new_err(format!(
                        "values of `{per_attribute}` are secret and hashed in Redis; give the store the `key_secret` of the servers"
                    )));
                }
                LimiterCounters::Redis(RedisCounters::new(
                    (handle, clock),
                    limits.clone(),
                    format!("{name}@{per_attribute}"),
                    is_secret,
                    max_wait,
                ))
            }
        };
        Ok(Self(Arc::new(LimiterCore {
            counters,
            limits: limits.into(),
            max_wait,
            on_failure,
        })))
    }

    /// Charges a request to `key` if all limits allow it. Cost 0 takes nothing.
    ///
    /// >>> from tidegate import Limiter
    /// >>> decision = Limiter("10/minute").check("user_42", cost=3)
    /// >>> decision.allowed, decision.remaining
    /// (True, 7)
    #[pyo3(signature = (key, cost=RequestCost::ONE), text_signature = "($self, key, cost=1)")]
    fn check(
        &self,
        py: Python<'_>,
        key: KeyArgument<'_>,
        cost: RequestCost,
    ) -> PyResult<PyDecision> {
        self.0.ask(py, LimiterQuestion::Check, key.0, cost.0)
    }

    /// Charges a request to `key` if all limits allow it: `check` without an object.
    ///
    /// >>> from tidegate import Limiter
    /// >>> limiter = Limiter("1/minute")
    /// >>> limiter.allow("user_42"), limiter.allow("user_42")
    /// (True, False)
    #[pyo3(signature = (key, cost=RequestCost::ONE), text_signature = "($self, key, cost=1)")]
    fn allow(&self, py: Python<'_>, key: KeyArgument<'_>, cost: RequestCost) -> PyResult<bool> {
        if let LimiterCounters::Memory(limiter, counters) = &self.0.counters {
            counters.clock.refresh(py)?;
            return Ok(limiter.check_cost(key.0, cost.0).is_allowed());
        }
        let decision = self.0.ask(py, LimiterQuestion::Check, key.0, cost.0)?;
        Ok(decision.allowed())
    }

    /// What `check` would answer, without charging anything.
    ///
    /// >>> from tidegate import Limiter
    /// >>> limiter = Limiter("10/minute")
    /// >>> limiter.peek("user_42").remaining, limiter.peek("user_42").remaining
    /// (10, 10)
    #[pyo3(signature = (key, cost=RequestCost::ONE), text_signature = "($self, key, cost=1)")]
    fn peek(
        &self,
        py: Python<'_>,
        key: KeyArgument<'_>,
        cost: RequestCost,
    ) -> PyResult<PyDecision> {
        self.0.ask(py, LimiterQuestion::Peek, key.0, cost.0)
    }

    /// Charges a cost that is known only afterwards, without asking: as much of it as fits into a full quota.
    ///
    /// >>> from tidegate import Limiter
    /// >>> Limiter("10/minute").settle("user_42", 30).remaining
    /// 0
    fn settle(
        &self,
        py: Python<'_>,
        key: KeyArgument<'_>,
        cost: RequestCost,
    ) -> PyResult<PyDecision> {
        self.0.ask(py, LimiterQuestion::Settle, key.0, cost.0)
    }

    /// Forgets what `key` has used.
    ///
    /// >>> from tidegate import Limiter
    /// >>> limiter = Limiter("1/minute")
    /// >>> limiter.allow("user_42"), limiter.reset("user_42"), limiter.allow("user_42")
    /// (True, None, True)
    fn reset(&self, py: Python<'_>, key: KeyArgument<'_>) -> PyResult<()> {
        match &self.0.counters {
            LimiterCounters::Memory(limiter, counters) => {
                counters.clock.refresh(py)?;
                limiter.reset(key.0);
                counters.freed.wake(py);
                Ok(())
            }
            LimiterCounters::Redis(redis) => {
                let answer = runtime::block_on(py, redis.reset(py, key.0)?)?;
                self.0.done(answer.map(|()| true)).map(|_| ())
            }
        }
    }

    /// Waits until `key` may go on, for `timeout` seconds at the most and never longer than `max_wait`; raises
    /// `RateLimited` if it would take longer. Other threads go on meanwhile.
    ///
    /// >>> from tidegate import Limiter
    /// >>> limiter = Limiter("100/second burst 1")
    /// >>> for page in range(3):
    /// ...     with limiter.acquire("api.example.com", timeout=2.0):
    /// ...         print(page)
    /// 0
    /// 1
    /// 2
    #[pyo3(signature = (key, cost=RequestCost::ONE, *, timeout=None), text_signature = "($self, key, cost=1, *, timeout=None)")]
    fn acquire(
        &self,
        py: Python<'_>,
        key: KeyArgument<'_>,
        cost: RequestCost,
        timeout: Option<Seconds>,
    ) -> PyResult<PyPermit> {
        acquiring::acquire(py, &self.0, key.0, cost.0, timeout)
    }

    /// Limits a function or coroutine function: a decorator. `key` is a text, or a function of the call's arguments. If
    /// a call is over the limit it raises `RateLimited`, or waits if `wait` is true.
    ///
    /// >>> from tidegate import Limiter, RateLimited
    /// >>> limiter = Limiter("1/minute")
    /// >>> @limiter.limit(lambda user: user)
    /// ... def greet(user):
    /// ...     return f"hello {user}"
    /// >>> greet("ada")
    /// 'hello ada'
    /// >>> try:
    /// ...     greet("ada")
    /// ... except RateLimited:
    /// ...     print("later")
    /// later
    #[pyo3(signature = (key, *, cost=RequestCost::ONE, wait=false), text_signature = "($self, key, *, cost=1, wait=False)")]
    fn limit<'py>(
        limiter: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        cost: RequestCost,
        wait: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let module = limiter.py().import("tidegate._decorator")?;
        module.call_method1("limit", (limiter, key, cost.0, wait))
    }

    /// The limits, in their order.
    ///
    /// >>> from tidegate import Limiter
    /// >>> [str(limit) for limit in Limiter("10/minute; 2/second").limits]
    /// ['10/minute', '2/second']
    #[getter]
    fn limits(&self) -> Vec<PyLimit> {
        self.0.limits.iter().cloned().map(PyLimit).collect()
    }

    /// How many keys the store in memory holds, and how many it had to forget; none over Redis.
    ///
    /// >>> from tidegate import Limiter
    /// >>> limiter = Limiter("10/minute")
    /// >>> limiter.allow("user_42"), limiter.stats()
    /// (True, Stats(keys=1, evictions=0))
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stats = py.import("tidegate._stats")?.getattr("Stats")?;
        match &self.0.counters {
            LimiterCounters::Memory(limiter, _) => {
                let found = limiter.stats();
                stats.call1((found.keys, found.evicted))
            }
            LimiterCounters::Redis(_) => stats.call1((py.None(), py.None())),
        }
    }

    fn __repr__(&self) -> String {
        let limits: Vec<String> = self.0.limits.iter().map(ToString::to_string).collect();
        format!("Limiter('{}')", limits.join("; "))
    }

    /// Whether its store is behind a network.
    #[getter]
    fn _is_remote(&self) -> bool {
        self.0.is_remote()
    }

    /// Begins `check`, `peek` or `settle` in the native thread.
    fn _begin(
        &self,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        asked: &str,
        key: KeyArgument<'_>,
        cost: RequestCost,
    ) -> PyResult<PendingCall> {
        let (py, core) = (mailbox.py(), Arc::clone(&self.0));
        let call = self
            .0
            .redis()?
            .ask(py, LimiterQuestion::named(asked), key.0, cost.0)?;
        runtime::begin_call(mailbox, number, call, move |py, answer| {
            Ok(Py::new(py, core.answered(answer)?)?.into_any())
        })
    }

    /// Begins `reset` in the native thread.
    fn _begin_reset(
        &self,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        key: KeyArgument<'_>,
    ) -> PyResult<PendingCall> {
        let (py, core) = (mailbox.py(), Arc::clone(&self.0));
        let call = self.0.redis()?.reset(py, key.0)?;
        runtime::begin_call(mailbox, number, call, move |py, answer| {
            core.done(answer.map(|()| true))?;
            Ok(py.None())
        })
    }

    /// Begins `acquire` in the native thread.
    #[pyo3(signature = (mailbox, number, key, cost, timeout))]
    fn _begin_acquire(
        &self,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        key: KeyArgument<'_>,
        cost: RequestCost,
        timeout: Option<Seconds>,
    ) -> PyResult<PendingCall> {
        let (py, core) = (mailbox.py(), Arc::clone(&self.0));
        let max_wait = acquiring::max_wait(&self.0, timeout);
        let call = self.0.redis()?.acquire(py, key.0, cost.0, max_wait)?;
        runtime::begin_call(mailbox, number, call, move |py, answer| {
            let permit = acquiring::acquired(py, &core, answer)?;
            Ok(Py::new(py, permit)?.into_any())
        })
    }

    /// One attempt to acquire in memory: a permit, and the seconds to wait before it is taken; or nothing, and the
    /// seconds after which to ask again.
    fn _reserve(
        &self,
        py: Python<'_>,
        key: KeyArgument<'_>,
        cost: RequestCost,
        seconds: Seconds,
    ) -> PyResult<(Option<acquiring::PyTurn>, f64)> {
        acquiring::reserve(py, &self.0, key.0, cost.0, seconds.into())
    }

    /// Calls `callback` at the next release of a permit in memory. Returns a number to forget it by; none if there are no
    /// permits.
    fn _when_freed(&self, callback: Py<PyAny>) -> Option<u64> {
        match &self.0.counters {
            LimiterCounters::Memory(_, counters) if self.0.holds_permits() => {
                Some(counters.freed.call(callback))
            }
            LimiterCounters::Memory(..) | LimiterCounters::Redis(_) => None,
        }
    }

    /// Does not call it any more.
    fn _forget_freed(&self, number: u64) {
        if let LimiterCounters::Memory(_, counters) = &self.0.counters {
            counters.freed.forget(number);
        }
    }

    /// For how many seconds a call may wait.
    #[pyo3(signature = (timeout))]
    fn _max_wait(&self, timeout: Option<Seconds>) -> f64 {
        acquiring::max_wait(&self.0, timeout).as_secs_f64()
    }
}
