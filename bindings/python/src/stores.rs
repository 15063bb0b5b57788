//! `MemoryStore` and `RedisStore`: where counters are kept, and what a limiter or a gate is given as its store.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tidegate::MemoryStore;
use tidegate::memory::DEFAULT_MAX_KEYS;
use tidegate_redis::{Namespace, RedisSettings, RedisStore, RedisUrl};
use tokio::sync::OnceCell;

use crate::arguments::CountArgument;
use crate::clock::{GivenClock, Seconds};
use crate::errors;
use crate::freed::Freed;
use crate::runtime::{self, PerProcess};

/// Counters in the memory of this process, for limiters and gates that share them.
///
/// A store holds up to `max_keys` keys; if there are more, those that matter least are forgotten. It has one clock: that
/// of the first limiter or gate.
///
/// >>> from tidegate import Limiter, MemoryStore
/// >>> store = MemoryStore(max_keys=1_000)
/// >>> reads = Limiter("100/minute", store=store, name="api")
/// >>> also_reads = Limiter("100/minute", store=store, name="api")
/// >>> reads.check("user_42").remaining, also_reads.check("user_42").remaining
/// (99, 98)
#[pyclass(name = "MemoryStore", module = "tidegate", frozen)]
pub(crate) struct PyMemoryStore {
    max_keys: usize,
    made: OnceLock<MemoryCounters>,
}

/// Counters in memory, the clock that decides there, and who waits for a permit.
#[derive(Clone)]
pub(crate) struct MemoryCounters {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: GivenClock,
    pub(crate) freed: Arc<Freed>,
}

impl MemoryCounters {
    pub(crate) fn new(clock: GivenClock, max_keys: usize) -> Self {
        let store = MemoryStore::builder()
            .clock(clock.clone())
            .max_keys(max_keys)
            .build();
        Self {
            store: Arc::new(store),
            clock,
            freed: Arc::default(),
        }
    }
}

#[pymethods]
impl PyMemoryStore {
    #[new]
    #[pyo3(signature = (max_keys=CountArgument(10_000_000)), text_signature = "(max_keys=10000000)")]
    fn new(max_keys: CountArgument) -> Self {
        let max_keys = usize::try_from(max_keys.0).unwrap_or(usize::MAX);
        let made = OnceLock::new();
        Self { max_keys, made }
    }

    fn __repr__(&self) -> String {
        format!("MemoryStore(max_keys={})", self.max_keys)
    }
}

impl PyMemoryStore {
    /// The counters, by this clock. Fails if they go by another one already.
    pub(crate) fn counters(&self, clock: GivenClock) -> PyResult<MemoryCounters> {
        let make = || MemoryCounters::new(clock.clone(), self.max_keys);
        let counters = self.made.get_or_init(make);
        if counters.clock.is_like(&clock) {
            return Ok(counters.clone());
        }
        Err(PyValueError::new_err(
            "this `MemoryStore` already decides by another clock; give every limiter and gate of a store the same `clock`",
        ))
    }
}

/// Counters in Redis or Valkey, which processes and machines share.
///
/// URLs are those of the server: `redis://host:port/db`, `rediss://…` with TLS, `unix:///path`,
/// `redis+sentinel://h1:p1,h2:p2/master-name`, `redis+cluster://h1:p1,h2:p2`. The connection is made at the first call,
/// in a child process anew. `deadline` and `connect_timeout` are seconds; `tls_ca`, `tls_cert` and `tls_key` are paths
/// of PEM files.
///
/// >>> from tidegate import RedisStore
/// >>> with RedisStore("redis://127.0.0.1:6379", deadline=0.05) as store:
/// ...     print(store)
/// RedisStore('redis://127.0.0.1:6379')
#[pyclass(name = "RedisStore", module = "tidegate", frozen)]
pub(crate) struct PyRedisStore(pub(crate) Arc<RedisHandle>);

/// A Redis, connected in each process that uses it.
pub(crate) struct RedisHandle {
    settings: RedisSettings,
    opened: PerProcess<OpenedRedis>,
    is_closed: AtomicBool,
    /// What holds the store and has to let it go when it is closed.
    dependents: Mutex<Vec<Weak<dyn ClosesToo>>>,
}

/// What holds a store.
pub(crate) trait ClosesToo: Send + Sync {
    /// Lets the store go.
    fn close(&self, py: Python<'_>);
}

impl<T: Send + Sync> ClosesToo for PerProcess<T> {
    fn close(&self, py: Python<'_>) {
        drop(self.take(py));
    }
}

/// The Redis of this process.
pub(crate) struct OpenedRedis {
    store: RedisStore,
    first_answer: OnceCell<()>,
    connect_timeout: Duration,
}

/// What a closed store answers.
pub(crate) const CLOSED: &str = "the store is closed";

/// How often it is asked whether the first connection is made.
const ASK_EVERY: Duration = Duration::from_millis(1);

impl OpenedRedis {
    /// The store, once it has answered or refused for the first time, or had its time to.
    pub(crate) async fn store(&self) -> &RedisStore {
        let first = self.first_answer.get_or_init(async || {
            let waiting = async {
                while self.store.is_slow() {
                    tokio::time::sleep(ASK_EVERY).await;
                }
            };
            let _ = tokio::time::timeout(self.connect_timeout, waiting).await;
        });
        first.await;
        &self.store
    }

    /// The store, which may not be connected yet.
    pub(crate) fn store_now(&self) -> RedisStore {
        self.store.clone()
    }
}

impl RedisHandle {
    pub(crate) fn new(settings: RedisSettings) -> Self {
        Self {
            settings,
            opened: PerProcess::new(),
            is_closed: AtomicBool::new(false),
            dependents: Mutex::default(),
        }
    }

    /// Closes `dependent` with the store.
    pub(crate) fn close_too<T: Send + Sync + 'static>(&self, dependent: &Arc<PerProcess<T>>) {
        let dependent = Arc::downgrade(dependent);
        let mut dependents = runtime::locked(&self.dependents);
        dependents.retain(|known| known.strong_count() > 0);
        dependents.push(dependent);
    }

    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::Relaxed);
        let dependents = std::mem::take(&mut *runtime::locked(&self.dependents));
        for dependent in dependents.iter().filter_map(Weak::upgrade) {
            dependent.close(py);
        }
        drop(self.opened.take(py));
    }

    /// The Redis at this URL, with defaults for all else.
    pub(crate) fn at(url: &str) -> PyResult<Self> {
        Ok(Self::new(RedisSettings::new(parse_url(url)?)))
    }

    pub(crate) fn settings(&self) -> &RedisSettings {
        &self.settings
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The Redis of this process. Begins to connect at the first call.
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<Arc<OpenedRedis>> {
        if self.is_closed() {
            return Err(errors::unanswered(CLOSED.to_owned(), true));
        }
        let runtime = runtime::handle(py)?;
        Ok(self.opened.get(py, || {
            let _in_runtime = runtime.enter();
            OpenedRedis {
                store: RedisStore::open(self.settings.clone()),
                first_answer: OnceCell::new(),
                connect_timeout: self.settings.connect_timeout,
            }
        }))
    }
}

fn parse_url(url: &str) -> PyResult<RedisUrl> {
    let parsed = url.parse::<RedisUrl>();
    parsed.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The text of a PEM file.
fn read_pem(path: Option<PathBuf>) -> PyResult<Option<Vec<u8>>> {
    Ok(path.map(std::fs::read).transpose()?)
}

/// A secret: text or bytes.
#[derive(FromPyObject)]
pub(crate) enum GivenSecret {
    Text(String),
    Bytes(Vec<u8>),
}

impl GivenSecret {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

#[pymethods]
impl PyRedisStore {
    #[new]
    #[pyo3(signature = (url, *, namespace=None, key_secret=None, deadline=Seconds::FIFTEEN_MILLISECONDS,
        connect_timeout=Seconds::HALF, tls_ca=None, tls_cert=None, tls_key=None),
        text_signature = "(url, *, namespace=None, key_secret=None, deadline=0.015, connect_timeout=0.5, tls_ca=None, tls_cert=None, tls_key=None)")]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        url: &str,
        namespace: Option<&str>,
        key_secret: Option<GivenSecret>,
        deadline: Seconds,
        connect_timeout: Seconds,
        tls_ca: Option<PathBuf>,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
    ) -> PyResult<Self> {
        let mut settings = RedisSettings::new(parse_url(url)?);
        let namespace = namespace.map(str::parse::<Namespace>).transpose();
        settings.namespace = namespace.map_err(|error| PyValueError::new_err(error.to_string()))?;
        settings.key_secret = key_secret.map(GivenSecret::into_bytes);
        settings.deadline = at_least_a_millisecond("deadline", deadline)?;
        settings.connect_timeout = at_least_a_millisecond("connect_timeout", connect_timeout)?;
        if tls_cert.is_some() != tls_key.is_some() {
            let message = "`tls_cert` and `tls_key` go together; give both or none";
            return Err(PyValueError::new_err(message));
        }
        settings.tls.ca = read_pem(tls_ca)?;
        settings.tls.cert = read_pem(tls_cert)?;
        settings.tls.key = read_pem(tls_key)?;
        Ok(Self(Arc::new(RedisHandle::new(settings))))
    }

    /// Waits until Redis answers, for so many seconds at the most; then it raises `StoreError`.
    ///
    /// >>> from tidegate import RedisStore, StoreError
    /// >>> try:
    /// ...     RedisStore("redis://127.0.0.1:1").wait_ready(timeout=0.01)
    /// ... except StoreError:
    /// ...     print("nothing answers there")
    /// nothing answers there
    fn wait_ready(&self, py: Python<'_>, timeout: Seconds) -> PyResult<()> {
        let opened = self.0.open(py)?;
        let connected =
            runtime::block_on(
                py,
                async move { opened.store.connected(timeout.into()).await },
            )?;
        connected.map_err(|problem| errors::unanswered(problem, true))
    }

    /// Closes the connections. Calls that follow raise `StoreError`.
    ///
    /// >>> from tidegate import RedisStore
    /// >>> RedisStore("redis://127.0.0.1:6379").close()
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __enter__(store: Py<Self>) -> Py<Self> {
        store
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("RedisStore('{}')", self.0.settings.url)
    }
}

fn at_least_a_millisecond(name: &str, given: Seconds) -> PyResult<Duration> {
    let span = Duration::from(given);
    if span < Duration::from_millis(1) {
        let message = format!("`{name}` is `{}`; give 0.001 or more", span.as_secs_f64());
        return Err(PyValueError::new_err(message));
    }
    Ok(span)
}

/// What a limiter or a gate was given as its store.
pub(crate) enum GivenStore {
    Memory(MemoryCounters),
    /// With a clock other than the system's, requests bring its time.
    Redis(Arc<RedisHandle>, GivenClock),
}

impl GivenStore {
    /// Reads `store=`: nothing, a store, or the URL of a Redis.
    pub(crate) fn read(store: Option<&Bound<'_, PyAny>>, clock: GivenClock) -> PyResult<Self> {
        let Some(store) = store else {
            let counters = MemoryCounters::new(clock, DEFAULT_MAX_KEYS);
            return Ok(Self::Memory(counters));
        };
        if let Ok(memory) = store.cast::<PyMemoryStore>() {
            return memory.get().counters(clock).map(Self::Memory);
        }
        let handle = if let Ok(redis) = store.cast::<PyRedisStore>() {
            Arc::clone(&redis.get().0)
        } else if let Ok(url) = store.extract::<&str>() {
            Arc::new(RedisHandle::at(url)?)
        } else {
            return Err(PyTypeError::new_err(
                "`store` is `None`, a `MemoryStore`, a `RedisStore` or the URL of a Redis",
            ));
        };
        Ok(Self::Redis(handle, clock))
    }
}
