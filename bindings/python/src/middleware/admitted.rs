//! What is made of a request: one that may go on, or the answer to its client.

use std::sync::{Mutex, PoisonError};

use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySet, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};
use tidegate::headers::Headers;
use tidegate_tower::{AdmittedRequest, RequestPermit};
use tokio::runtime::Handle;

use crate::runtime;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// How the names and values of headers are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderForm {
    /// As in WSGI.
    Text,
    /// As in ASGI.
    Bytes,
}

impl HeaderForm {
    fn pair<'py>(self, py: Python<'py>, name: &str, value: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
        match self {
            Self::Text => {
                // Each byte is a character, of which most values have only those of ASCII.
                let value = match std::str::from_utf8(value) {
                    Ok(text) if text.is_ascii() => PyString::new(py, text),
                    _ => {
                        let text: String = value.iter().copied().map(char::from).collect();
                        PyString::new(py, &text)
                    }
                };
                (text_of_name(py, name), value).into_pyobject(py)
            }
            Self::Bytes => {
                let name = PyBytes::new(py, name.as_bytes());
                (name, PyBytes::new(py, value)).into_pyobject(py)
            }
        }
    }

    /// Whether a name that the application has set is one of these.
    fn is_one_of<'n>(
        self,
        given: &Bound<'_, PyAny>,
        names: impl IntoIterator<Item = &'n str>,
    ) -> PyResult<bool> {
        let is_name = |given: &[u8]| {
            let mut names = names.into_iter();
            names.any(|name| given.eq_ignore_ascii_case(name.as_bytes()))
        };
        Ok(match self {
            Self::Text => is_name(given.cast::<PyString>()?.to_string_lossy().as_bytes()),
            Self::Bytes => is_name(given.extract()?),
        })
    }
}

/// The name of a header as a text. Those of decisions are made once.
fn text_of_name<'py>(py: Python<'py>, name: &str) -> Bound<'py, PyString> {
    let made = match name {
        "x-ratelimit-limit" => intern!(py, "x-ratelimit-limit"),
        "x-ratelimit-remaining" => intern!(py, "x-ratelimit-remaining"),
        "x-ratelimit-reset" => intern!(py, "x-ratelimit-reset"),
        "ratelimit-policy" => intern!(py, "ratelimit-policy"),
        "ratelimit" => intern!(py, "ratelimit"),
        _ => return PyString::new(py, name),
    };
    made.clone()
}

/// The answer to a client whose request does not go on.
#[pyclass(name = "Reply", module = "tidegate._native", frozen)]
pub(crate) struct PyReply {
    response: Response<Vec<u8>>,
    form: HeaderForm,
}

impl PyReply {
    pub(super) fn new(response: Response<impl AsRef<[u8]>>, form: HeaderForm) -> Self {
        let mut response = response.map(|body| body.as_ref().to_vec());
        let length = HeaderValue::from(response.body().len());
        response.headers_mut().insert(CONTENT_LENGTH, length);
        Self { response, form }
    }
}

#[pymethods]
impl PyReply {
    #[getter]
    fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The status with its phrase.
    #[getter]
    fn status_line(&self) -> String {
        let status = self.response.status();
        let phrase = status.canonical_reason().unwrap_or("Denied");
        format!("{} {phrase}", status.as_u16())
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (name, value) in self.response.headers() {
            list.append(self.form.pair(py, name.as_str(), value.as_bytes())?)?;
        }
        Ok(list)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.response.body())
    }

    /// Whether the request could not be understood, and was not decided.
    #[getter]
    fn is_malformed(&self) -> bool {
        let reason = self.response.extensions();
        reason.get::<tidegate_tower::DenialReason>().is_none()
    }
}

/// The headers of a decision: their values in one text, and their names with the ends of the values.
struct DecisionHeaders {
    text: String,
    ends: Vec<(&'static str, usize)>,
}

impl DecisionHeaders {
    fn new(headers: Headers) -> Self {
        let (text, ranges) = headers.into_text();
        let ends = ranges.map(|(name, range)| (name, range.end)).collect();
        Self { text, ends }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.ends.iter().map(|(name, _)| *name)
    }

    fn append_to(&self, list: &Bound<'_, PyList>, form: HeaderForm) -> PyResult<()> {
        let mut start = 0;
        for (name, end) in &self.ends {
            let value = &self.text.as_bytes()[start..*end];
            list.append(form.pair(list.py(), name, value)?)?;
            start = *end;
        }
        Ok(())
    }
}

/// A request that may go on. One of WSGI is what its application is given as `start_response`.
#[pyclass(name = "Admitted", module = "tidegate._native", frozen)]
pub(crate) struct PyAdmitted {
    /// That of the server.
    start_response: Option<Py<PyAny>>,
    request: Mutex<Option<AdmittedRequest>>,
    permit: Mutex<Option<RequestPermit>>,
    headers: DecisionHeaders,
    form: HeaderForm,
    /// Whether the application is called as if nothing had been asked, but for headers.
    is_plain: bool,
    is_observed: bool,
    delay: f64,
    /// The names of the headers that the application gets, if not all that came.
    kept_names: Option<Vec<HeaderName>>,
}

impl PyAdmitted {
    /// `runtime` holds a permit, if there is one to hold.
    pub(super) fn new(
        admitted: AdmittedRequest,
        runtime: impl FnOnce() -> PyResult<Handle>,
        form: HeaderForm,
    ) -> PyResult<Self> {
        let decision = admitted.decision();
        let (delay, is_observed) = (decision.delay(), decision.is_observed());
        let permit = if decision.permit().is_some() {
            let runtime = runtime()?;
            let _in_runtime = runtime.enter();
            admitted.hold()
        } else {
            None
        };
        Ok(Self {
            start_response: None,
            headers: DecisionHeaders::new(admitted.headers()),
            form,
            is_plain: delay.is_zero() && permit.is_none() && !is_observed,
            is_observed,
            delay: delay.as_secs_f64(),
            kept_names: None,
            permit: Mutex::new(permit),
            request: Mutex::new(Some(admitted)),
        })
    }

    /// The same, for an application that does not get all headers.
    pub(super) fn with_kept_names(self, kept_names: Option<Vec<HeaderName>>) -> Self {
        Self { kept_names, ..self }
    }

    /// The same, for an application that begins its answer by it.
    pub(super) fn with_start(self, start_response: Option<Py<PyAny>>) -> Self {
        Self {
            start_response,
            ..self
        }
    }

    fn report(&self, answer: Option<&Response<()>>) {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(request) = &mut *request {
            request.answered(answer);
        }
    }
}

#[pymethods]
impl PyAdmitted {
    #[getter]
    fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether its answer gets headers.
    #[getter]
    fn has_headers(&self) -> bool {
        !self.headers.ends.is_empty()
    }

    /// Begins the answer of an application of WSGI, with the headers of the decision.
    #[pyo3(signature = (status, headers, exc_info=None))]
    fn __call__<'py>(
        &self,
        status: &Bound<'py, PyAny>,
        headers: &Bound<'py, PyAny>,
        exc_info: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = status.py();
        let Some(start_response) = &self.start_response else {
            return Err(PyTypeError::new_err("a request of ASGI is not callable"));
        };
        let (start_response, headers) =
            (start_response.bind(py), self.answer(py, status, headers)?);
        match exc_info {
            Some(exc_info) => start_response.call1((status, headers, exc_info)),
            None => start_response.call1((status, headers)),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.start_response)
    }

    /// Seconds to wait before the application is called.
    #[getter]
    fn delay(&self) -> f64 {
        self.delay
    }

    /// The names of the headers that the application gets, in lower case, if not all that came.
    #[getter]
    fn kept_names<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PySet>>> {
        let Some(kept) = &self.kept_names else {
            return Ok(None);
        };
        let names = kept.iter().map(|name| PyBytes::new(py, name.as_ref()));
        PySet::new(py, names).map(Some)
    }

    /// The application is called now.
    fn begin(&self) {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(request) = &mut *request {
            request.begin();
        }
    }

    /// The headers of an answer: those of the application, and those of the decision, which replace others of the same
    /// name. Rules with adaptive limits learn of the status.
    fn answer<'py>(
        &self,
        py: Python<'py>,
        status: &Bound<'py, PyAny>,
        headers: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let mut grpc_status = None;
        for pair in headers.try_iter()? {
            let pair = pair?;
            let name = pair.get_item(0)?;
            if self.is_observed && self.form.is_one_of(&name, [GRPC_STATUS.as_str()])? {
                grpc_status = Some(pair.get_item(1)?);
            }
            if !self.form.is_one_of(&name, self.headers.names())? {
                list.append(pair)?;
            }
        }
        self.headers.append_to(&list, self.form)?;
        if self.is_observed {
            let mut answer = Response::new(());
            *answer.status_mut() = status_of(status)?;
            if let Some(status) = grpc_status
                && let Ok(value) = HeaderValue::from_str(status.str()?.to_str()?)
            {
                answer.headers_mut().insert(GRPC_STATUS, value);
            }
            self.report(Some(&answer));
        }
        Ok(list)
    }

    /// The application has failed without an answer.
    fn fail(&self) {
        self.report(None);
    }

    /// The answer has ended: releases the permit.
    fn release(&self) {
        let mut permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        drop(permit.take());
    }

    /// Nothing waits for the decision any more.
    fn _abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.give_back(py)
    }

    /// Gives back what was charged: the application is not called.
    fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        self.release();
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(request) = request.take() {
            runtime::handle(py)?.spawn(request.give_back());
        }
        Ok(())
    }
}

/// A status as ASGI has it, a number, or WSGI, with its phrase.
fn status_of(given: &Bound<'_, PyAny>) -> PyResult<StatusCode> {
    let number = if let Ok(line) = given.cast::<PyString>() {
        let line = line.to_str()?;
        line.get(..3).and_then(|number| number.parse().ok())
    } else {
        Some(given.extract()?)
    };
    let status = number.and_then(|number| StatusCode::from_u16(number).ok());
    Ok(status.unwrap_or_default())
}
