//! The runtime of stores behind a network: one thread, which never touches Python, so that it neither waits for the
//! interpreter nor outlives it. Made anew in a child process.
//!
//! A thread of Python waits for a call by [`block_on`]; an event loop finds the answer in its [`Mailbox`].

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

/// How often a thread that waits looks for signals, such as that of Ctrl-C.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

static RUNTIME: PerProcess<io::Result<Handle>> = PerProcess::new();

/// A value of this process. A child process that was forked makes its own, and never touches that of its parent: its
/// threads are not there, and its locks may be held.
pub(crate) struct PerProcess<T> {
    made: Mutex<Option<(u32, Arc<T>)>>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self {
            made: Mutex::new(None),
        }
    }

    /// The value of this process, made at the first call. Called with the interpreter held, so that the lock is free
    /// when the process forks.
    pub(crate) fn get(&self, _: Python<'_>, new: impl FnOnce() -> T) -> Arc<T> {
        let mut made = locked(&self.made);
        let process = std::process::id();
        if let Some((of, value)) = &*made
            && *of == process
        {
            return Arc::clone(value);
        }
        let value = Arc::new(new());
        let before = made.replace((process, Arc::clone(&value)));
        std::mem::forget(before);
        value
    }

    /// Takes the value out, if this process has made it.
    pub(crate) fn take(&self, _: Python<'_>) -> Option<Arc<T>> {
        let (of, value) = locked(&self.made).take()?;
        if of == std::process::id() {
            return Some(value);
        }
        std::mem::forget(value);
        None
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let made = self.made.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, value)) = made.take()
            && of != std::process::id()
        {
            std::mem::forget(value);
        }
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The runtime of this process, begun at the first call.
pub(crate) fn handle(py: Python<'_>) -> PyResult<Handle> {
    match &*RUNTIME.get(py, begin) {
        Ok(handle) => Ok(handle.clone()),
        Err(error) => Err(PyRuntimeError::new_err(format!(
            "no thread for calls to Redis: {error}"
        ))),
    }
}

fn begin() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("tidegate".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}

/// Waits for a call, without the interpreter. A signal whose handler raises, such as that of Ctrl-C, ends the call.
pub(crate) fn block_on<T: Send + 'static>(
    py: Python<'_>,
    call: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = sync_channel(1);
    let task = handle(py)?.spawn(async move {
        let _ = sender.send(call.await);
    });
    loop {
        let waiting = &mut receiver;
        match py.detach(move || waiting.recv_timeout(LOOK_EVERY)) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("a call to the store was lost"));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    task.abort();
                    return Err(raised);
                }
            }
        }
    }
}

/// An answer on its way to an event loop: made into an object of Python there.
type Delivery = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Where an event loop finds the answers of its calls. Its file descriptor is readable if there are any.
#[pyclass(module = "tidegate._native", frozen)]
pub(crate) struct Mailbox {
    inner: Arc<MailboxInner>,
    reader: UnixStream,
}

struct MailboxInner {
    deliveries: Mutex<VecDeque<(u64, Delivery)>>,
    writer: UnixStream,
}

impl MailboxInner {
    fn put(&self, number: u64, delivery: Delivery) {
        let mut deliveries = locked(&self.deliveries);
        let is_first = deliveries.is_empty();
        deliveries.push_back((number, delivery));
        drop(deliveries);
        if is_first {
            // One byte is enough, and if there is no room the loop has not read the last one yet.
            let _ = (&self.writer).write(&[1]);
        }
    }
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let deliveries = Mutex::default();
        Ok(Self {
            inner: Arc::new(MailboxInner { deliveries, writer }),
            reader,
        })
    }

    fn fileno(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// What has arrived: for each call its number, whether it succeeded, and its answer or its error.
    fn take(&self, py: Python<'_>) -> Vec<(u64, bool, Py<PyAny>)> {
        let mut bytes = [0; 64];
        while (&self.reader)
            .read(&mut bytes)
            .is_ok_and(|length| length == bytes.len())
        {}
        let arrived = std::mem::take(&mut *locked(&self.inner.deliveries));
        let opened = arrived.into_iter().map(|(number, open)| match open(py) {
            Ok(answer) => (number, true, answer),
            Err(error) => (number, false, error.into_value(py).into_any()),
        });
        opened.collect()
    }
}

/// A call that an event loop has begun.
#[pyclass(module = "tidegate._native", frozen)]
pub(crate) struct PendingCall {
    task: AbortHandle,
}

#[pymethods]
impl PendingCall {
    /// Ends the call. What it has reserved is given back.
    fn cancel(&self) {
        self.task.abort();
    }
}

/// Begins a call whose answer `open` makes into an object of Python, in the thread of the event loop.
pub(crate) fn begin_call<T: Send + 'static>(
    mailbox: &Bound<'_, Mailbox>,
    number: u64,
    call: impl Future<Output = T> + Send + 'static,
    open: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<PendingCall> {
    let inner = Arc::clone(&mailbox.get().inner);
    let task = handle(mailbox.py())?.spawn(async move {
        let answer = call.await;
        inner.put(number, Box::new(move |py| open(py, answer)));
    });
    Ok(PendingCall {
        task: task.abort_handle(),
    })
}
