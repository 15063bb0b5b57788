//! `Decision` and `Outcome`: the answer for a request, and that of each limit.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate::headers::{HeaderSettings, Item, limit_name};
use tidegate::{Decision, Limit, LimiterDecision, Micros, Outcome, Retry, Timestamp};

use crate::clock::seconds_of;
use crate::permit::{PermitHolder, PyPermit};

/// Whether a request may go on, and what its caller should know. True if it may.
///
/// Where several limits apply, the numbers are those of the limit that decided: if denied, the denying one with the
/// longest wait; if allowed, the one with the fewest remaining.
///
/// >>> from tidegate import Limiter, ManualClock
/// >>> limiter = Limiter("1/minute", clock=ManualClock(0))
/// >>> limiter.check("user_42")
/// Decision(allowed=True, limit=1, remaining=0, retry_after=0.0)
/// >>> decision = limiter.check("user_42")
/// >>> bool(decision), decision.retry_after, decision.reset_at
/// (False, 60.0, 60.0)
#[pyclass(name = "Decision", module = "tidegate", frozen)]
pub(crate) struct PyDecision {
    answer: Answered,
    holder: Option<PermitHolder>,
}

/// Where an answer came from.
#[expect(
    clippy::large_enum_variant,
    reason = "the largest is the usual one, and is not allocated by itself"
)]
enum Answered {
    /// The limits of a limiter.
    Limits(Arc<[Limit]>, LimiterDecision),
    /// Nowhere: the store did not answer, and the limiter goes on without it.
    Unknown(Arc<[Limit]>, Box<[Outcome]>),
    /// The rules of a gate.
    Rules(Box<Decision>),
}

/// When to retry a request that was denied because the store did not answer.
const TRY_AGAIN: Micros = Micros::SECOND;

impl PyDecision {
    /// The answer of a limiter. `holder` releases its permit, if it has one.
    #[inline]
    pub(crate) fn of_limiter(
        limits: &Arc<[Limit]>,
        decision: LimiterDecision,
        holder: impl FnOnce() -> PermitHolder,
    ) -> Self {
        let holder = decision.permit().is_some().then(holder);
        Self {
            answer: Answered::Limits(Arc::clone(limits), decision),
            holder,
        }
    }

    /// The answer of a limiter whose store did not answer.
    pub(crate) fn unknown(limits: &Arc<[Limit]>, is_allowed: bool, now: Timestamp) -> Self {
        let outcome = |limit: &Limit| Outcome {
            allowed: is_allowed,
            limit: limit.capacity(),
            remaining: if is_allowed { limit.capacity() } else { 0 },
            exceeded: 0,
            retry: if is_allowed {
                Retry::Now
            } else {
                Retry::After(TRY_AGAIN)
            },
            reset_at: now,
            delay: Micros::ZERO,
            at: now,
            is_remembered: false,
        };
        let outcomes = limits.iter().map(outcome).collect();
        Self {
            answer: Answered::Unknown(Arc::clone(limits), outcomes),
            holder: None,
        }
    }

    /// The answer of a gate.
    pub(crate) fn of_gate(decision: Decision, holder: impl FnOnce() -> PermitHolder) -> Self {
        let holder = decision.permit().is_some().then(holder);
        Self {
            answer: Answered::Rules(Box::new(decision)),
            holder,
        }
    }

    /// The outcome that decided. None if no rule applies.
    fn headline(&self) -> Option<&Outcome> {
        match &self.answer {
            Answered::Limits(_, decision) => decision.outcomes().get(decision.decided_by()),
            Answered::Unknown(_, outcomes) => outcomes.iter().min_by_key(|outcome| outcome.limit),
            Answered::Rules(decision) => decision.headline().map(|limit| limit.outcome),
        }
    }

    fn gate(&self) -> Option<&Decision> {
        match &self.answer {
            Answered::Rules(decision) => Some(decision),
            Answered::Limits(..) | Answered::Unknown(..) => None,
        }
    }
}

#[pymethods]
impl PyDecision {
    /// Whether the request may go on. If not, nothing was charged.
    ///
    /// >>> from tidegate import Limiter
    /// >>> Limiter("1/minute").check("user_42").allowed
    /// True
    #[getter]
    pub(crate) fn allowed(&self) -> bool {
        self.headline().is_none_or(|outcome| outcome.allowed)
    }

    fn __bool__(&self) -> bool {
        self.allowed()
    }

    /// What the limit that decided grants: requests per window, or a bucket's capacity. None if no rule applies.
    ///
    /// >>> from tidegate import Limiter
    /// >>> Limiter("100/minute burst 20").check("user_42").limit
    /// 20
    #[getter]
    fn limit(&self) -> Option<u64> {
        self.headline().map(|outcome| outcome.limit)
    }

    /// The largest cost that would be allowed now, after this request. None if no rule applies.
    ///
    /// >>> from tidegate import Limiter
    /// >>> Limiter("3/minute").check("user_42").remaining
    /// 2
    #[getter]
    fn remaining(&self) -> Option<u64> {
        self.headline().map(|outcome| outcome.remaining)
    }

    /// Seconds before this same request would be allowed, if no other came: 0.0 if it was, none if waiting cannot help.
    ///
    /// >>> from tidegate import Limiter
    /// >>> limiter = Limiter("3/minute")
    /// >>> limiter.check("user_42").retry_after, limiter.check("user_42", cost=4).retry_after
    /// (0.0, None)
    #[getter]
    pub(crate) fn retry_after(&self) -> Option<f64> {
        match self.headline() {
            Some(outcome) => outcome.retry.wait().map(seconds_of),
            None => Some(0.0),
        }
    }

    /// When `remaining` is whole again, in seconds since 1970, if no other request came. None if no rule applies.
    ///
    /// >>> from tidegate import Limiter, ManualClock
    /// >>> Limiter("60/minute", clock=ManualClock(1000)).check("user_42").reset_at
    /// 1001.0
    #[getter]
    fn reset_at(&self) -> Option<f64> {
        self.headline()
            .map(|outcome| unix_seconds(outcome.reset_at))
    }

    /// Seconds for which the caller should hold the request before it goes on. 0.0 if it is denied.
    ///
    /// >>> from tidegate import Limit, Limiter, ManualClock
    /// >>> limiter = Limiter(Limit("1/second", max_delay="2s"), clock=ManualClock(0))
    /// >>> limiter.check("user_42").delay, limiter.check("user_42").delay
    /// (0.0, 1.0)
    #[getter]
    fn delay(&self) -> f64 {
        match &self.answer {
            Answered::Limits(_, decision) => decision.delay().as_secs_f64(),
            Answered::Unknown(..) => 0.0,
            Answered::Rules(decision) => decision.delay().as_secs_f64(),
        }
    }

    /// What the request holds under concurrency limits, to be released when it is done; none if it holds nothing.
    ///
    /// >>> from tidegate import Limit, Limiter
    /// >>> decision = Limiter(Limit.concurrent(2)).check("worker")
    /// >>> decision.permit.release()
    /// True
    #[getter]
    fn permit(decision: PyRef<'_, Self>) -> PyResult<Option<Py<PyPermit>>> {
        let py = decision.py();
        let Some(holder) = decision.holder.clone() else {
            return Ok(None);
        };
        let permit = PyPermit::new(holder, decision.permit_id(), decision.into());
        Py::new(py, permit).map(Some)
    }

    /// What each limit answered, in their order; of a gate also those of shadow rules.
    ///
    /// >>> from tidegate import Limiter
    /// >>> decision = Limiter("10/minute; 2/second").check("user_42")
    /// >>> [outcome.remaining for outcome in decision.outcomes]
    /// [9, 1]
    #[getter]
    fn outcomes(&self) -> Vec<PyOutcome> {
        let of_limits = |limits: &[Limit], outcomes: &[Outcome]| {
            let both = limits.iter().zip(outcomes);
            both.map(|(limit, outcome)| PyOutcome::new(outcome, Some(limit), None))
                .collect()
        };
        match &self.answer {
            Answered::Limits(limits, decision) => of_limits(limits, decision.outcomes()),
            Answered::Unknown(limits, outcomes) => of_limits(limits, outcomes),
            Answered::Rules(decision) => {
                let limits = decision.limits();
                let outcome = |limit: tidegate::gate::LimitOutcome<'_>| PyOutcome {
                    shadow: limit.is_shadow,
                    candidate: limit.is_candidate(),
                    ..PyOutcome::new(limit.outcome, limit.limit, Some(limit.rule.id().to_owned()))
                };
                limits.map(outcome).collect()
            }
        }
    }

    /// The headers that report it to a client, as the server sends them. A limiter has no rules, so `name` is what
    /// clients know the limit by: letters, digits, `.`, `_`, `-` and `/`.
    ///
    /// >>> from tidegate import Limiter, ManualClock
    /// >>> decision = Limiter("3/minute", clock=ManualClock(60)).check("user_42")
    /// >>> for pair in decision.headers():
    /// ...     print(pair)
    /// ('x-ratelimit-limit', '3')
    /// ('x-ratelimit-remaining', '2')
    /// ('x-ratelimit-reset', '80')
    /// ('ratelimit-policy', '"limit";q=3;w=60')
    /// ('ratelimit', '"limit";r=2;t=20')
    #[pyo3(signature = (name="limit"))]
    fn headers(&self, name: &str) -> PyResult<Vec<(&'static str, String)>> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_part) {
            let message = format!(
                "`{name}` cannot be the name of a limit; write letters, digits, `.`, `_`, `-` and `/`"
            );
            return Err(PyValueError::new_err(message));
        }
        let settings = HeaderSettings::default();
        let of_limits = |limits: &[Limit], outcomes: &[Outcome], headline: usize| {
            let names: Vec<_> = limits
                .iter()
                .enumerate()
                .map(|(index, limit)| limit_name(name, index, limit))
                .collect();
            let items: Vec<Item<'_>> = limits
                .iter()
                .zip(outcomes)
                .zip(&names)
                .map(|((limit, outcome), name)| Item {
                    name,
                    unit: None,
                    limit: Some(limit),
                    outcome,
                })
                .collect();
            settings.headers(&items, headline).collect()
        };
        Ok(match &self.answer {
            Answered::Limits(limits, decision) => {
                of_limits(limits, decision.outcomes(), decision.decided_by())
            }
            Answered::Unknown(limits, outcomes) => of_limits(limits, outcomes, 0),
            Answered::Rules(decision) => decision.headers(&settings).collect(),
        })
    }

    /// The id of the rule that decided; none of a limiter, and if no rule applies.
    ///
    /// >>> from tidegate import Gate
    /// >>> Gate("rules: [{id: all, per: [], limit: 10/minute}]").check({}).rule
    /// 'all'
    #[getter]
    fn rule(&self) -> Option<&str> {
        self.gate()?.rule()
    }

    /// Why the request is denied, such as `over_limit`; none if it is allowed.
    ///
    /// >>> from tidegate import Gate
    /// >>> Gate("rules: [{id: all, per: [], limit: blocked}]").check({}).reason
    /// 'blocked'
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        match &self.answer {
            Answered::Rules(decision) => decision.reason().map(tidegate::Reason::name),
            Answered::Unknown(..) if !self.allowed() => {
                Some(tidegate::Reason::StoreUnavailable.name())
            }
            Answered::Limits(..) if !self.allowed() => {
                let is_never = self.retry_after().is_none();
                let reason = if is_never {
                    tidegate::Reason::TooExpensive
                } else {
                    tidegate::Reason::OverLimit
                };
                Some(reason.name())
            }
            Answered::Limits(..) | Answered::Unknown(..) => None,
        }
    }

    /// Whether the store did not answer, and the request was decided without it.
    ///
    /// >>> from tidegate import Limiter
    /// >>> limiter = Limiter("1/minute", store="redis://127.0.0.1:1", on_store_failure="allow")
    /// >>> decision = limiter.check("user_42")
    /// >>> decision.allowed, decision.degraded
    /// (True, True)
    #[getter]
    fn degraded(&self) -> bool {
        match &self.answer {
            Answered::Limits(..) => false,
            Answered::Unknown(..) => true,
            Answered::Rules(decision) => decision.is_degraded(),
        }
    }

    /// The attributes that the rule counts by and the request lacks, if it is denied for that.
    ///
    /// >>> from tidegate import Gate
    /// >>> gate = Gate("rules: [{id: all, per: [user_id], missing: deny, limit: 10/minute}]")
    /// >>> gate.check({}).missing
    /// ['user_id']
    #[getter]
    fn missing(&self) -> Vec<&str> {
        let headline = self.gate().and_then(Decision::headline);
        headline.map_or_else(Vec::new, |limit| limit.missing().collect())
    }

    fn __repr__(&self) -> String {
        let number = |number: Option<u64>| {
            number.map_or_else(|| "None".to_owned(), |number| number.to_string())
        };
        let retry = self.retry_after();
        format!(
            "Decision(allowed={}, limit={}, remaining={}, retry_after={})",
            if self.allowed() { "True" } else { "False" },
            number(self.limit()),
            number(self.remaining()),
            retry.map_or_else(|| "None".to_owned(), |retry| format!("{retry:?}")),
        )
    }
}

impl PyDecision {
    fn permit_id(&self) -> Option<tidegate::PermitId> {
        match &self.answer {
            Answered::Limits(_, decision) => decision.permit(),
            Answered::Unknown(..) => None,
            Answered::Rules(decision) => decision.permit(),
        }
    }
}

fn unix_seconds(at: Timestamp) -> f64 {
    seconds_of(Micros::new(at.as_micros()))
}

/// What one limit answered.
///
/// >>> from tidegate import Limiter, ManualClock
/// >>> Limiter("2/minute", clock=ManualClock(0)).check("user_42").outcomes[0].remaining
/// 1
#[pyclass(name = "Outcome", module = "tidegate", frozen, get_all)]
pub(crate) struct PyOutcome {
    /// Whether this limit allows the request.
    allowed: bool,
    /// What it grants: requests per window, or a bucket's capacity.
    limit: u64,
    /// The largest cost that it would allow now.
    remaining: u64,
    /// Seconds before it would allow the request; 0.0 if it does, none if waiting cannot help.
    retry_after: Option<f64>,
    /// When `remaining` is whole again, in seconds since 1970.
    reset_at: f64,
    /// Seconds for which it holds the request.
    delay: f64,
    /// The algorithm that counts it; `blocked` if its rule blocks.
    algorithm: &'static str,
    /// The rule that it is of; none of a limiter.
    rule: Option<String>,
    /// Whether it only counts and never denies.
    shadow: bool,
    /// Whether it is a limit of its rule's candidate.
    candidate: bool,
}

impl PyOutcome {
    fn new(outcome: &Outcome, limit: Option<&Limit>, rule: Option<String>) -> Self {
        Self {
            allowed: outcome.allowed,
            limit: outcome.limit,
            remaining: outcome.remaining,
            retry_after: outcome.retry.wait().map(seconds_of),
            reset_at: unix_seconds(outcome.reset_at),
            delay: seconds_of(outcome.delay),
            algorithm: limit.map_or("blocked", |limit| limit.algorithm().name()),
            rule,
            shadow: false,
            candidate: false,
        }
    }
}

#[pymethods]
impl PyOutcome {
    fn __bool__(&self) -> bool {
        self.allowed
    }

    fn __repr__(&self) -> String {
        format!(
            "Outcome(allowed={}, limit={}, remaining={}, algorithm='{}')",
            if self.allowed { "True" } else { "False" },
            self.limit,
            self.remaining,
            self.algorithm,
        )
    }
}
