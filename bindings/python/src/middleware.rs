//! What the middleware needs of the native module: the head of a request is put to the layer of `tidegate-tower`, so that
//! attributes, answers and headers are those of Rust. Calling the application, and waiting, is left to Python.

mod admitted;
mod described;
mod head;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate::Gate;
use tidegate::address::{TrustedProxies, parse_network};
use tidegate::headers::HeaderSettings;
use tidegate_tower::{AdmittedRequest, PeerAddress, RateLimitLayer};

use self::admitted::HeaderForm;
pub(crate) use self::admitted::{PyAdmitted, PyReply};
use self::described::{PythonCall, with_descriptions};
use self::head::{HeadError, ReadHead};
use crate::arguments::RequestCost;
use crate::gate::{GateInUse, PyGate, ready};
use crate::runtime::{self, Mailbox, PendingCall, PerProcess};
use crate::stores::OpenedRedis;

/// A gate in front of an application of WSGI or ASGI.
#[pyclass(module = "tidegate._native", frozen)]
pub(crate) struct Middleware {
    gate: Py<PyGate>,
    headers: HeaderSettings,
    proxies: TrustedProxies,
    /// Of a gate in memory.
    layer: OnceLock<Arc<RateLimitLayer>>,
    /// Of a gate over Redis, which each process has its own of.
    redis_layer: PerProcess<RateLimitLayer>,
    /// Whether a request without an address was logged.
    has_warned: AtomicBool,
}

/// What the layer makes of a request.
type Decided = (Parts, Result<AdmittedRequest, Box<Response<Bytes>>>);

/// The gate and the layer of this process.
struct OpenedLayer {
    gate: Arc<Gate>,
    layer: Arc<RateLimitLayer>,
    /// None if the store is in memory.
    redis: Option<Arc<OpenedRedis>>,
}

/// A request that is put to the layer.
struct PutRequest {
    layer: RateLimitLayer,
    parts: Parts,
    form: HeaderForm,
}

impl PutRequest {
    /// The request, or the answer to one that is malformed.
    fn new(
        layer: &RateLimitLayer,
        head: Result<ReadHead, HeadError>,
        mut described: PythonCall,
        form: HeaderForm,
    ) -> PyResult<Result<Self, PyReply>> {
        let head = match head {
            Ok(head) => head,
            Err(HeadError::Python(error)) => return Err(error),
            Err(HeadError::Malformed(detail)) => {
                let reply = tidegate_tower::problem(StatusCode::BAD_REQUEST, &detail);
                return Ok(Err(PyReply::new(reply, form)));
            }
        };
        let mut parts = head.parts;
        described.other_paths = head.other_paths;
        if !described.is_empty() {
            parts.extensions.insert(described);
        }
        let layer = layer.clone();
        Ok(Ok(Self { layer, parts, form }))
    }

    /// Decides it in memory. `start` is what an application of WSGI begins its answer by.
    fn decide_now(self, py: Python<'_>, start: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let (form, came) = (self.form, self.parts.headers.len());
        let decided = ready(self.layer.decide(self.parts));
        let decided =
            decided.ok_or_else(|| PyRuntimeError::new_err("the store in memory did not answer"))?;
        made(py, decided, form, came, start)
    }

    /// Decides it by Redis, once that has had its time to connect.
    async fn decide(self, redis: Arc<OpenedRedis>) -> Decided {
        redis.store().await;
        self.layer.decide(self.parts).await
    }
}

/// The object of Python for what the layer has made of a request that came with so many headers.
fn made(
    py: Python<'_>,
    decided: Decided,
    form: HeaderForm,
    came: usize,
    start: Option<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let (parts, admitted) = decided;
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(reply) => return Ok(Py::new(py, PyReply::new(*reply, form))?.into_any()),
    };
    let kept = (parts.headers.len() < came).then(|| parts.headers.keys().cloned().collect());
    let admitted = PyAdmitted::new(admitted, || runtime::handle(py), form)?;
    let admitted = admitted.with_kept_names(kept).with_start(start);
    Ok(Py::new(py, admitted)?.into_any())
}

#[pymethods]
impl Middleware {
    #[new]
    fn new(gate: Py<PyGate>, headers: Vec<String>, trusted_proxies: Vec<String>) -> PyResult<Self> {
        let networks = trusted_proxies.iter().map(|text| parse_network(text));
        let proxies = networks.collect::<Result<_, _>>();
        Ok(Self {
            gate,
            headers: header_settings(&headers)?,
            proxies: proxies.map_err(|error| PyValueError::new_err(error.to_string()))?,
            layer: OnceLock::new(),
            redis_layer: PerProcess::new(),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Whether the store is behind a network.
    #[getter]
    fn is_remote(&self) -> bool {
        self.gate.get().0.is_remote()
    }

    /// Decides a request of WSGI. Waits for the store if that is behind a network.
    #[pyo3(signature = (environ, start_response, attributes=None, cost=None))]
    fn wsgi(
        &self,
        environ: &Bound<'_, PyDict>,
        start_response: Py<PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        cost: Option<RequestCost>,
    ) -> PyResult<Py<PyAny>> {
        let (py, form) = (environ.py(), HeaderForm::Text);
        let opened = self.open(py)?;
        let head = head::of_environ(environ, &opened.gate.rules(), !self.proxies.is_empty());
        let described = PythonCall::read(attributes, cost)?;
        self.warn_of_missing_peer(py, &opened.gate, &head, &described)?;
        let asked = match PutRequest::new(&opened.layer, head, described, form)? {
            Ok(asked) => asked,
            Err(reply) => return Ok(Py::new(py, reply)?.into_any()),
        };
        let start = Some(start_response);
        let Some(redis) = opened.redis else {
            return asked.decide_now(py, start);
        };
        let came = asked.parts.headers.len();
        let decided = runtime::block_on(py, asked.decide(redis))?;
        made(py, decided, form, came, start)
    }

    /// Decides a request of ASGI in memory.
    #[pyo3(signature = (scope, attributes=None, cost=None))]
    fn asgi(
        &self,
        scope: &Bound<'_, PyDict>,
        attributes: Option<&Bound<'_, PyAny>>,
        cost: Option<RequestCost>,
    ) -> PyResult<Py<PyAny>> {
        let py = scope.py();
        let opened = self.open(py)?;
        match self.asked_of_scope(&opened, scope, attributes, cost)? {
            Ok(asked) => asked.decide_now(py, None),
            Err(reply) => Ok(Py::new(py, reply)?.into_any()),
        }
    }

    /// Begins to decide a request of ASGI by a store behind a network.
    #[pyo3(signature = (mailbox, number, scope, attributes=None, cost=None))]
    fn begin_asgi(
        &self,
        mailbox: &Bound<'_, Mailbox>,
        number: u64,
        scope: &Bound<'_, PyDict>,
        attributes: Option<&Bound<'_, PyAny>>,
        cost: Option<RequestCost>,
    ) -> PyResult<PendingCall> {
        let opened = self.open(mailbox.py())?;
        let asked = self.asked_of_scope(&opened, scope, attributes, cost)?;
        match (asked, opened.redis) {
            (Ok(asked), Some(redis)) => {
                let (form, came) = (asked.form, asked.parts.headers.len());
                let open = move |py: Python<'_>, decided| made(py, decided, form, came, None);
                runtime::begin_call(mailbox, number, asked.decide(redis), open)
            }
            (Ok(_), None) => Err(PyRuntimeError::new_err(
                "the store is in memory and answers immediately",
            )),
            (Err(reply), _) => {
                let open = |py: Python<'_>, reply| Ok(Py::new(py, reply)?.into_any());
                runtime::begin_call(mailbox, number, std::future::ready(reply), open)
            }
        }
    }
}

impl Middleware {
    /// The gate and the layer of this process, at the time of the gate's clock.
    fn open(&self, py: Python<'_>) -> PyResult<OpenedLayer> {
        let make = |gate: &Arc<Gate>| {
            let layer = RateLimitLayer::new(Arc::clone(gate)).headers(self.headers);
            with_descriptions(layer.trusted_proxies(self.proxies.clone()))
        };
        let (gate, layer, redis) = match self.gate.get().0.gate(py)? {
            GateInUse::Memory(gate) => {
                let layer = self.layer.get_or_init(|| Arc::new(make(gate)));
                (Arc::clone(gate), Arc::clone(layer), None)
            }
            GateInUse::Redis(redis, gate) => {
                let layer = self.redis_layer.get(py, || make(&gate));
                (gate, layer, Some(redis))
            }
        };
        Ok(OpenedLayer { gate, layer, redis })
    }

    fn asked_of_scope(
        &self,
        opened: &OpenedLayer,
        scope: &Bound<'_, PyDict>,
        attributes: Option<&Bound<'_, PyAny>>,
        cost: Option<RequestCost>,
    ) -> PyResult<Result<PutRequest, PyReply>> {
        let head = head::of_scope(scope);
        let described = PythonCall::read(attributes, cost)?;
        self.warn_of_missing_peer(scope.py(), &opened.gate, &head, &described)?;
        PutRequest::new(&opened.layer, head, described, HeaderForm::Bytes)
    }

    /// Logs once that a request has no address although rules count by it: they do not apply to it.
    fn warn_of_missing_peer(
        &self,
        py: Python<'_>,
        gate: &Gate,
        head: &Result<ReadHead, HeadError>,
        described: &PythonCall,
    ) -> PyResult<()> {
        let Ok(head) = head else {
            return Ok(());
        };
        let is_known = head.parts.extensions.get::<PeerAddress>().is_some();
        if is_known || described.has_address() || self.has_warned.load(Ordering::Relaxed) {
            return Ok(());
        }
        let rules = gate.rules();
        let mut counting = rules.iter();
        let is_counted = counting.any(|rule| rule.per().iter().any(|name| name == "ip"));
        if is_counted && !self.has_warned.swap(true, Ordering::Relaxed) {
            let message = "rules count by `ip`, but a request came without the address of its peer, so that they do not apply; if the server listens on a Unix socket, name the client with `key` or `attributes`";
            let logging = py.import("logging")?;
            let logger = logging.call_method1("getLogger", ("tidegate",))?;
            logger.call_method1("warning", (message,))?;
        }
        Ok(())
    }
}

fn header_settings(names: &[String]) -> PyResult<HeaderSettings> {
    let mut settings = HeaderSettings::NONE;
    for name in names {
        match name.as_str() {
            "x" => settings.x = true,
            "draft-10" => settings.draft_10 = true,
            "retry-after" => settings.retry_after = true,
            _ => {
                let message = format!(
                    "`{name}` is not a kind of headers; give `x`, `draft-10` or `retry-after`"
                );
                return Err(PyValueError::new_err(message));
            }
        }
    }
    Ok(settings)
}
