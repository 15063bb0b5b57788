//! `Limit`: what may be granted, and how it is counted. What the other classes are given as limits.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use tidegate::limit::{MAX_WINDOW, MIN_WINDOW};
use tidegate::{Algorithm, Anchor, Limit, LimitError, Micros, Rate, Window};

use crate::arguments::CountArgument;
use crate::clock::Seconds;
use crate::errors::{invalid_limit, limit_error};

/// A limit, such as `100/minute burst 20`, and the algorithm that counts it.
///
/// Without an algorithm it is a token bucket, or a fixed window if the window is a day or longer, as in rules. Options
/// are those of rules: `anchor` of `fixed_window`, `slots` and `strict` of `sliding_window_slots`, `max_delay` of
/// `token_bucket`, `shape` of `leaky_bucket`, `lease_ttl` of `concurrency`. Spans are texts such as `500ms`, or seconds.
///
/// >>> from tidegate import Limit
/// >>> Limit("100/minute burst 20")
/// Limit('100/minute burst 20', 'token_bucket')
/// >>> Limit("10/hour", "sliding_window_log").algorithm
/// 'sliding_window_log'
/// >>> Limit("5/second", max_delay="200ms").algorithm
/// 'token_bucket'
#[pyclass(name = "Limit", module = "tidegate", frozen, eq)]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PyLimit(pub(crate) Limit);

#[pymethods]
impl PyLimit {
    #[new]
    #[pyo3(signature = (rate, algorithm=None, *, anchor=None, slots=None, strict=None, max_delay=None, shape=None, lease_ttl=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        rate: &str,
        algorithm: Option<&str>,
        anchor: Option<&str>,
        slots: Option<CountArgument>,
        strict: Option<bool>,
        max_delay: Option<OptionSpan>,
        shape: Option<bool>,
        lease_ttl: Option<OptionSpan>,
    ) -> PyResult<Self> {
        let rate: Rate = rate.parse().map_err(|error| limit_error(&error))?;
        let mut algorithm = match algorithm {
            Some(name) => algorithm_named(name)?,
            None => default_for(&rate, max_delay.as_ref()),
        };
        let name = algorithm.name();
        let unused = |option: &str, owner: &str| {
            Err(invalid_limit(format!(
                "`{option}` is an option of `{owner}`, and this limit counts with `{name}`; remove it, or count with `{owner}`"
            )))
        };
        match (anchor, &mut algorithm) {
            (None, _) => {}
            (Some(given), Algorithm::FixedWindow { anchor }) => *anchor = anchor_named(given)?,
            (Some(_), _) => unused("anchor", "fixed_window")?,
        }
        match (slots, &mut algorithm) {
            (None, _) => {}
            (Some(given), Algorithm::SlidingWindowSlots { slots, .. }) => {
                // More than there can be are refused as such.
                *slots = Some(u32::try_from(given.0).unwrap_or(u32::MAX));
            }
            (Some(_), _) => unused("slots", "sliding_window_slots")?,
        }
        match (strict, &mut algorithm) {
            (None, _) => {}
            (Some(given), Algorithm::SlidingWindowSlots { strict, .. }) => *strict = given,
            (Some(_), _) => unused("strict", "sliding_window_slots")?,
        }
        match (max_delay, &mut algorithm) {
            (None, _) => {}
            (Some(given), Algorithm::TokenBucket { max_delay }) => *max_delay = given.0,
            (Some(_), _) => unused("max_delay", "token_bucket")?,
        }
        match (shape, &mut algorithm) {
            (None, _) => {}
            (Some(given), Algorithm::LeakyBucket { shape }) => *shape = given,
            (Some(_), _) => unused("shape", "leaky_bucket")?,
        }
        match (lease_ttl, &mut algorithm) {
            (None, _) => {}
            (Some(given), Algorithm::Concurrency { lease_ttl }) => {
                *lease_ttl = given.lease_ttl()?;
            }
            (Some(_), _) => unused("lease_ttl", "concurrency")?,
        }
        Self::of(rate, algorithm)
    }

    /// A number of requests at the same time, each until its permit is released or `lease_ttl` has passed.
    ///
    /// >>> from tidegate import Limit, Limiter
    /// >>> limiter = Limiter(Limit.concurrent(1))
    /// >>> with limiter.acquire("worker"):
    /// ...     limiter.allow("worker")
    /// False
    #[staticmethod]
    #[pyo3(signature = (n, *, lease_ttl=None))]
    fn concurrent(n: CountArgument, lease_ttl: Option<OptionSpan>) -> PyResult<Self> {
        let algorithm = match lease_ttl {
            Some(given) => Algorithm::Concurrency {
                lease_ttl: given.lease_ttl()?,
            },
            None => Algorithm::CONCURRENCY,
        };
        Self::of(Rate::concurrent(n.0), algorithm)
    }

    /// The name of the algorithm, as in rules.
    ///
    /// >>> from tidegate import Limit
    /// >>> Limit("10000/day").algorithm
    /// 'fixed_window'
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.0.algorithm().name()
    }

    /// The most that it grants in one instant.
    ///
    /// >>> from tidegate import Limit
    /// >>> Limit("100/minute burst 20").capacity
    /// 20
    #[getter]
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Limit('{}', '{}')", self.0, self.algorithm())
    }

    fn __hash__(&self) -> u64 {
        self.0.shape() ^ self.0.capacity()
    }
}

impl PyLimit {
    fn of(rate: Rate, algorithm: Algorithm) -> PyResult<Self> {
        let limit = Limit::new(rate, algorithm);
        limit.map(Self).map_err(|error| limit_error(&error))
    }
}

/// A span of time: a text such as `500ms`, or seconds.
struct OptionSpan(Micros);

impl OptionSpan {
    fn lease_ttl(&self) -> PyResult<Micros> {
        if (MIN_WINDOW..=MAX_WINDOW).contains(&self.0) {
            return Ok(self.0);
        }
        Err(limit_error(&LimitError::SpanOutOfRange {
            what: "lease_ttl",
            span: self.0,
        }))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for OptionSpan {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if !given.is_instance_of::<PyString>() {
            return given.extract::<Seconds>().map(|seconds| Self(seconds.0));
        }
        let span = given.extract::<&str>()?.parse();
        span.map(Self).map_err(|error| limit_error(&error))
    }
}

/// The algorithm of a limit that names none. `max_delay` makes it a bucket if it can be one.
fn default_for(rate: &Rate, max_delay: Option<&OptionSpan>) -> Algorithm {
    let is_delayed = max_delay.is_some_and(|delay| !delay.0.is_zero());
    match (Algorithm::default_for(rate), rate.window) {
        (Algorithm::FixedWindow { .. }, Some(Window::Span(_))) if is_delayed => {
            Algorithm::TOKEN_BUCKET
        }
        (algorithm, _) => algorithm,
    }
}

fn algorithm_named(name: &str) -> PyResult<Algorithm> {
    Algorithm::named(name).map_err(|error| invalid_limit(error.to_string()))
}

fn anchor_named(name: &str) -> PyResult<Anchor> {
    match name {
        "clock" => Ok(Anchor::Clock),
        "first_request" => Ok(Anchor::FirstRequest),
        _ => Err(invalid_limit(format!(
            "`{name}` is not an anchor; expected one of `clock`, `first_request`"
        ))),
    }
}

/// Reads the limits of a limiter: a text, a `Limit` or a list of them.
pub(crate) fn read_limits(
    limits: &Bound<'_, PyAny>,
    algorithm: Option<&str>,
) -> PyResult<Vec<Limit>> {
    if let Ok(text) = limits.cast::<PyString>() {
        return parse_limits(text.to_str()?, algorithm);
    }
    if algorithm.is_some() {
        return Err(PyValueError::new_err(
            "`algorithm` is for limits that are a text; give it to each `Limit` instead",
        ));
    }
    if let Ok(limit) = limits.cast::<PyLimit>() {
        return Ok(vec![limit.get().0.clone()]);
    }
    let wrong = || {
        PyTypeError::new_err("`limits` is a text such as `100/minute`, a `Limit` or a list of them")
    };
    let mut all = Vec::new();
    for item in limits.try_iter().map_err(|_| wrong())? {
        let item = item?;
        if let Ok(text) = item.cast::<PyString>() {
            all.extend(parse_limits(text.to_str()?, None)?);
        } else {
            all.push(item.cast::<PyLimit>().map_err(|_| wrong())?.get().0.clone());
        }
    }
    Ok(all)
}

/// Limits that are written as text, each by this algorithm or by its default.
pub(crate) fn parse_limits(text: &str, algorithm: Option<&str>) -> PyResult<Vec<Limit>> {
    let algorithm = algorithm.map(algorithm_named).transpose()?;
    let rates = Rate::parse_all(text).map_err(|error| limit_error(&error))?;
    let limit = |rate: Rate| {
        let algorithm = algorithm.unwrap_or_else(|| Algorithm::default_for(&rate));
        Limit::new(rate, algorithm).map_err(|error| limit_error(&error))
    };
    rates.into_iter().map(limit).collect()
}
