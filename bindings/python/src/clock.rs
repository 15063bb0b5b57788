//! Where a limiter in memory reads the time: the system, a clock that tests move, or `time.time` of Python.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use tidegate::{Clock, ManualClock, Micros, SystemClock, Timestamp};

/// A clock for tests: it stands still until it is moved.
///
/// >>> from tidegate import Limiter, ManualClock
/// >>> clock = ManualClock(1_800_000_000)
/// >>> limiter = Limiter("1/second", clock=clock)
/// >>> limiter.allow("a"), limiter.allow("a")
/// (True, False)
/// >>> clock.advance(1)
/// >>> limiter.allow("a")
/// True
#[pyclass(name = "ManualClock", module = "tidegate", frozen)]
pub(crate) struct PyManualClock(Arc<ManualClock>);

#[pymethods]
impl PyManualClock {
    #[new]
    fn new(start: Seconds) -> Self {
        Self(Arc::new(ManualClock::new(start.timestamp())))
    }

    /// Moves the clock on.
    ///
    /// >>> from tidegate import ManualClock
    /// >>> clock = ManualClock(100)
    /// >>> clock.advance(0.5)
    /// >>> clock.now()
    /// 100.5
    fn advance(&self, seconds: Seconds) {
        self.0.advance(seconds.0);
    }

    /// Sets the clock to seconds since 1970, earlier or later than before.
    ///
    /// >>> from tidegate import ManualClock
    /// >>> clock = ManualClock(100)
    /// >>> clock.set(50)
    /// >>> clock.now()
    /// 50.0
    fn set(&self, unix_seconds: Seconds) {
        self.0.set(unix_seconds.timestamp());
    }

    /// The time that it shows, in seconds since 1970.
    ///
    /// >>> from tidegate import ManualClock
    /// >>> ManualClock(100).now()
    /// 100.0
    fn now(&self) -> f64 {
        seconds_of(Micros::new(self.0.now().as_micros()))
    }

    fn __repr__(&self) -> String {
        format!("ManualClock({})", self.now())
    }
}

/// Seconds that a caller gave, zero or more.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Micros);

impl Seconds {
    pub(crate) const FIFTEEN_MILLISECONDS: Self = Self(Micros::from_millis(15));
    pub(crate) const TEN: Self = Self(Micros::from_seconds(10));
    pub(crate) const HALF: Self = Self(Micros::from_millis(500));

    fn timestamp(self) -> Timestamp {
        Timestamp::from_micros(self.0.get())
    }
}

impl From<Seconds> for Duration {
    fn from(seconds: Seconds) -> Self {
        seconds.0.into()
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Seconds {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err("seconds are a number, not a `bool`"));
        }
        let Ok(seconds) = given.extract::<f64>() else {
            let kind = given.get_type().name()?;
            let message = format!("seconds are a number, not `{kind}`");
            return Err(PyTypeError::new_err(message));
        };
        micros_of(seconds).map(Self)
    }
}

/// Seconds as whole microseconds. Times of Python are exact to less than that for the next centuries.
fn micros_of(seconds: f64) -> PyResult<Micros> {
    if !seconds.is_finite() || seconds < 0.0 {
        let message = format!("`{seconds}` is not a number of seconds; give 0 or more");
        return Err(PyValueError::new_err(message));
    }
    let micros = (seconds * 1e6).round();
    #[expect(clippy::cast_precision_loss, reason = "it is a power of two less one")]
    if micros > Micros::MAX.get() as f64 {
        let message = format!("`{seconds}` seconds are more than can be counted");
        return Err(PyOverflowError::new_err(message));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it was checked"
    )]
    Ok(Micros::new(micros as u64))
}

/// A span in seconds.
#[expect(clippy::cast_precision_loss, reason = "it is below 2^53")]
pub(crate) fn seconds_of(span: Micros) -> f64 {
    span.get() as f64 / 1e6
}

/// The clock of a limiter or a gate.
#[derive(Clone)]
pub(crate) enum GivenClock {
    /// The system's.
    System,
    /// Moved by tests.
    Manual(Arc<ManualClock>),
    /// What `time.time` said at the last call. Python code must not run under the locks of a store, so it is asked
    /// before each call.
    Python(Arc<ManualClock>),
}

impl GivenClock {
    pub(crate) fn read(clock: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(clock) = clock else {
            return Ok(Self::System);
        };
        if let Ok(manual) = clock.cast::<PyManualClock>() {
            return Ok(Self::Manual(Arc::clone(&manual.get().0)));
        }
        if clock.extract::<&str>().is_ok_and(|name| name == "python") {
            let clock = Self::Python(Arc::default());
            return Ok(clock);
        }
        let message = "`clock` is `None`, `\"python\"` or a `ManualClock`";
        Err(PyTypeError::new_err(message))
    }

    /// Asks Python for the time, if that is the clock. Called before each decision, with the interpreter held until
    /// its end.
    #[inline]
    pub(crate) fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        match self {
            Self::System | Self::Manual(_) => Ok(()),
            Self::Python(clock) => refresh(py, clock),
        }
    }

    /// Whether stores that read them show the same time.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::System, Self::System) | (Self::Python(_), Self::Python(_)) => true,
            (Self::Manual(one), Self::Manual(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

#[cold]
fn refresh(py: Python<'_>, clock: &ManualClock) -> PyResult<()> {
    let time = py.import(intern!(py, "time"))?;
    let now: f64 = time.getattr(intern!(py, "time"))?.call0()?.extract()?;
    clock.set(Timestamp::from_micros(micros_of(now)?.get()));
    Ok(())
}

impl Clock for GivenClock {
    fn now(&self) -> Timestamp {
        match self {
            Self::System => SystemClock.now(),
            Self::Manual(clock) | Self::Python(clock) => clock.now(),
        }
    }

    fn is_system(&self) -> bool {
        matches!(self, Self::System)
    }
}
