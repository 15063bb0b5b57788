//! The log of a server, which tests wait for.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tracing::Dispatch;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::PATIENCE;

/// Marks the end of the log.
const END: &str = "\u{4}";

/// Grows while the server runs.
#[derive(Debug, Default)]
pub struct ServerLog {
    text: Mutex<String>,
    grown: Condvar,
}

impl ServerLog {
    /// Adds a text.
    pub fn push(&self, text: &str) {
        let mut all = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_str(text);
        self.grown.notify_all();
    }

    /// Nothing is added any more.
    pub fn end(&self) {
        self.push(END);
    }

    /// The log so far.
    pub fn text(&self) -> String {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.replace(END, "")
    }

    /// Waits until a text has been logged so many times.
    #[track_caller]
    pub fn wait_for_times(&self, text: &str, times: usize) -> String {
        let all = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |all: &mut String| all.matches(text).count() < times;
        let waited = self.grown.wait_timeout_while(all, PATIENCE, is_missing);
        let (all, result) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!result.timed_out(), "no `{text}` in:\n{all}");
        all.clone()
    }

    /// Waits until a text has been logged.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        self.wait_for_times(text, 1)
    }

    /// The whole log, when the server has ended.
    pub fn whole(&self) -> String {
        self.wait_for(END).replace(END, "")
    }

    /// Collects what threads log that use this dispatcher, in the format of the program.
    pub(crate) fn dispatch(self: &Arc<Self>, level: &str) -> Dispatch {
        let filter: Targets = level.parse().unwrap();
        let log = Arc::clone(self);
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || LogLine(Arc::clone(&log)))
            .with_target(false)
            .with_ansi(false);
        Dispatch::new(tracing_subscriber::registry().with(filter).with(lines))
    }
}

/// Takes one line, whole.
struct LogLine(Arc<ServerLog>);

impl io::Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
