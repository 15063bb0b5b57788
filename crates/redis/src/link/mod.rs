//! A link to one server: one connection, a queue, and a breaker between them.
//!
//! Whoever asks puts a job into the queue and waits no longer than the job's deadline. A task of the
//! link's own connects, sends what has gathered (`flight.rs`), and while the server does not answer lets
//! every job fail at once (`life.rs`).

mod batch;
mod flight;
mod life;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::call::{CallError, Job, Reply, Work};
use crate::dial::Dialer;
use crate::monotonic::now;
use crate::sentinel::Sentinels;
use crate::stats::Stats;
use crate::url::Node;
use crate::wire::Step;

/// How many steps go into one call of the script at the most.
pub(crate) const BATCH: usize = 64;

/// How long after the last question a link counts as used.
const IN_USE: Duration = Duration::from_secs(5);

/// A link to one server. Ends its task when it is dropped.
pub(crate) struct Link {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What a link is made from.
pub(crate) struct LinkSettings {
    pub(crate) target: Target,
    pub(crate) dialer: Dialer,
    pub(crate) deadline: Duration,
    /// Whether steps may share a call only if they share a slot.
    pub(crate) is_cluster: bool,
    pub(crate) stats: Arc<Stats>,
    /// A step that writes, to see whether the server does what decisions ask of it.
    pub(crate) probe: Step,
}

/// Whom a link connects to.
#[derive(Clone)]
pub(crate) enum Target {
    /// This server.
    Node(Node),
    /// Whom the sentinels say is the master.
    MasterOf(Arc<Sentinels>),
}

struct Shared {
    settings: LinkSettings,
    queue: Mutex<VecDeque<Job>>,
    /// Somebody has put a job into the queue.
    wake: Notify,
    /// Somebody knows that the connection should be made anew.
    renew: Notify,
    is_up: AtomicBool,
    /// Why it is not.
    problem: Mutex<String>,
    /// How many jobs may wait, so that the last of them can still be answered in time.
    room: AtomicU64,
    /// Whom it is connected to.
    connected_to: Mutex<Option<Node>>,
    asked_at: Mutex<Instant>,
}

impl Link {
    /// Begins to connect. Must be called within a runtime.
    pub(crate) fn open(settings: LinkSettings) -> Self {
        let shared = Arc::new(Shared {
            settings,
            queue: Mutex::new(VecDeque::new()),
            wake: Notify::new(),
            renew: Notify::new(),
            is_up: AtomicBool::new(false),
            problem: Mutex::new("it has not been reached yet".to_owned()),
            room: AtomicU64::new(BATCH as u64 * 16),
            connected_to: Mutex::new(None),
            asked_at: Mutex::new(now()),
        });
        let task = tokio::spawn(life::live(Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Asks, and waits until the deadline for the answer.
    pub(crate) async fn call(
        &self,
        work: Work,
        is_asking: bool,
        deadline: Instant,
    ) -> Result<Reply, CallError> {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            work,
            is_asking,
            deadline,
            reply,
        };
        self.shared.push(job)?;
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            // The link's task has ended with the job in its hands.
            Ok(Err(_)) => Err(CallError::Lost("the link was closed".to_owned())),
            Err(_) => Err(CallError::Late),
        }
    }

    /// Whether jobs are sent at all just now.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.is_up.load(Ordering::Acquire)
    }

    /// Why they are not.
    pub(crate) fn problem(&self) -> String {
        self.shared.problem.lock().clone()
    }

    /// Makes the connection anew, because it is known to lead to the wrong server.
    pub(crate) fn renew(&self) {
        self.shared.renew.notify_one();
    }

    /// Whom it is connected to.
    pub(crate) fn connected_to(&self) -> Option<Node> {
        self.shared.connected_to.lock().clone()
    }

    /// Whether somebody has asked something of late.
    pub(crate) fn is_in_use(&self) -> bool {
        self.shared.asked_at.lock().elapsed() < IN_USE
    }

    /// How many jobs wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue.lock().len()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.is_up.store(false, Ordering::Release);
        self.shared.fail_waiting();
    }
}

impl Shared {
    fn push(&self, job: Job) -> Result<(), CallError> {
        let mut queue = self.queue.lock();
        // Under the lock, so that no job is left in the queue of a link that has gone down.
        if !self.is_up.load(Ordering::Acquire) {
            drop(queue);
            return Err(CallError::Down(self.problem.lock().clone()));
        }
        if queue.len() as u64 >= self.room.load(Ordering::Relaxed) {
            self.settings.stats.add(&self.settings.stats.shed);
            return Err(CallError::Down(
                "more is waiting than can be answered in time".to_owned(),
            ));
        }
        queue.push_back(job);
        drop(queue);
        *self.asked_at.lock() = now();
        self.wake.notify_one();
        Ok(())
    }

    /// From now on jobs are sent.
    fn rise(&self) {
        let _queue = self.queue.lock();
        self.is_up.store(true, Ordering::Release);
    }

    /// From now on jobs fail at once, and those that wait with them.
    fn fall(&self, problem: String) {
        *self.problem.lock() = problem;
        self.is_up.store(false, Ordering::Release);
        *self.connected_to.lock() = None;
        self.fail_waiting();
    }

    fn fail_waiting(&self) {
        let waiting = std::mem::take(&mut *self.queue.lock());
        if waiting.is_empty() {
            return;
        }
        let problem = self.problem.lock().clone();
        for job in waiting {
            let _ = job.reply.send(Err(CallError::Down(problem.clone())));
        }
    }
}
