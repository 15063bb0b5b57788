//! What all rows of a run share: the program, and how long the parts of a row take.

use std::path::PathBuf;
use std::time::Duration;

/// What a row is run with.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub(crate) program: PathBuf,
    /// Few seconds for each part, and a debug build on a machine that does other work.
    pub(crate) is_short: bool,
    /// Load before the fault.
    pub(crate) before: Duration,
    /// How long a fault lasts, unless its row says otherwise.
    pub(crate) fault: Duration,
    /// Load after the fault.
    pub(crate) after: Duration,
    /// `redis_deadline` of the servers.
    pub(crate) deadline: Duration,
    /// How much longer than the deadline 99.9 % of the answers may take, in the short form 99.8 % of those during the fault.
    pub(crate) latency_slack: Duration,
    /// How long after the end of a fault answers may be degraded.
    pub(crate) recovery: Duration,
}

impl Ground {
    /// How often a row is run that only time lets fail.
    pub(crate) fn attempts(&self) -> u32 {
        if self.is_short { 3 } else { 1 }
    }

    /// The whole suite, on a machine that does nothing else.
    pub(crate) fn long(program: PathBuf) -> Self {
        Self {
            program,
            is_short: false,
            before: Duration::from_secs(3),
            fault: Duration::from_secs(5),
            after: Duration::from_secs(5),
            deadline: Duration::from_millis(15),
            latency_slack: Duration::from_millis(2),
            recovery: Duration::from_secs(1),
        }
    }

    /// A few rows, as a test.
    pub(crate) fn short(program: PathBuf) -> Self {
        Self {
            program,
            is_short: true,
            before: Duration::from_secs(1),
            fault: Duration::from_secs(2),
            after: Duration::from_secs(2),
            deadline: Duration::from_millis(100),
            // Less than the deadline, so that no decision may wait twice.
            latency_slack: Duration::from_millis(95),
            recovery: Duration::from_secs(2),
        }
    }
}
