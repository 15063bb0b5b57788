//! A link to one server: one connection, a queue, and a breaker between them.
//!
//! Callers put a job into the queue and wait for its reply. The link's task connects (`life.rs`), sends
//! queued jobs in batches and fails those whose deadline has passed (`serve.rs`, `batch.rs`, `sent.rs`).
//! While the server does not answer (`health.rs`), every job fails immediately.
//!
//! Only the task decides which jobs are late, because it knows which bytes have arrived unread, and how long it did not
//! run itself: a stall of this process is not a failure of the server.
//!
//! Why not the library's own connections: `docs/decisions/005-redis-link.md`.

mod batch;
mod health;
mod life;
mod sent;
mod serve;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::{Clock as _, SystemClock, Timestamp};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use batch::CallBatch;

use crate::call::{CallBody, CallError, CallReply, Job};
use crate::dial::Dialer;
use crate::monotonic::now;
use crate::sentinel::Sentinels;
use crate::stats::Stats;
use crate::url::RedisNode;
use tidegate_redis_wire::wire::LuaStep;

/// How many steps go into one call of the script at the most.
pub(crate) const BATCH: usize = 64;

/// The problem of a server before the first attempt has ended.
pub(crate) const NOT_YET: &str = "it has not been reached yet";

/// How long a server may be silent while it is asked.
const SILENCE: Duration = Duration::from_millis(100);

/// How long after the last call a link counts as used.
const IN_USE: Duration = Duration::from_secs(5);

/// A link to one server. Ends its task when it is dropped.
pub(crate) struct Link {
    shared: Arc<LinkShared>,
    task: JoinHandle<()>,
}

/// The settings of a link.
#[derive(Clone)]
pub(crate) struct LinkSettings {
    pub(crate) dialer: Dialer,
    pub(crate) deadline: Duration,
    /// Whether steps may share a call only if they share a slot.
    pub(crate) is_cluster: bool,
    pub(crate) stats: Arc<Stats>,
    /// A step that writes, to check that the server can serve decisions.
    pub(crate) probe: LuaStep,
}

/// The server that a link connects to.
#[derive(Clone)]
pub(crate) enum LinkTarget {
    /// This server.
    Node(RedisNode),
    /// The master that the sentinels name.
    MasterOf(Arc<Sentinels>),
}

struct LinkShared {
    target: LinkTarget,
    settings: LinkSettings,
    queue: Mutex<Queue>,
    /// A job was put into the queue.
    wake: Notify,
    /// The connection is to be replaced.
    renew: Notify,
    is_up: AtomicBool,
    /// Why it is not.
    problem: Mutex<String>,
    /// Since when it is not.
    down_since: Mutex<Option<Timestamp>>,
    /// How many jobs may wait, so that the last of them can still be answered in time.
    room: AtomicU64,
    /// The server that it is connected to.
    connected_to: Mutex<Option<RedisNode>>,
    asked_at: Mutex<Instant>,
}

/// Jobs that wait to be sent.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The earliest of their deadlines.
    due: Option<Instant>,
}

impl Queue {
    fn push(&mut self, job: Job) {
        let due = self.due.map_or(job.deadline, |due| due.min(job.deadline));
        self.due = Some(due);
        self.jobs.push_back(job);
    }

    /// Takes jobs from its head; see [`batch::take`].
    fn take(&mut self, is_cluster: bool, earliest_answer: Instant) -> Vec<CallBatch> {
        let batches = batch::take(&mut self.jobs, is_cluster, earliest_answer);
        self.find_due();
        batches
    }

    /// Fails the jobs whose deadline has passed: they were never sent.
    fn expire(&mut self, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        for job in self.jobs.iter_mut().filter(|job| job.deadline <= now) {
            job.answer(Err(batch::too_late()));
        }
        self.jobs.retain(|job| !job.is_answered());
        self.find_due();
    }

    fn find_due(&mut self) {
        self.due = self.jobs.iter().map(|job| job.deadline).min();
    }

    /// Gives all of them more time.
    fn extend(&mut self, by: Duration) {
        for job in &mut self.jobs {
            job.deadline += by;
        }
        self.due = self.due.map(|due| due + by);
    }
}

impl Link {
    /// Begins to connect. Must be called within a runtime.
    pub(crate) fn open(target: LinkTarget, settings: LinkSettings) -> Self {
        let shared = Arc::new(LinkShared::new(target, settings));
        let task = tokio::spawn(life::live(Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Sends a call and waits for the reply. The link's task fails it when the deadline has passed.
    pub(crate) async fn call(
        &self,
        work: CallBody,
        is_asking: bool,
        deadline: Instant,
    ) -> Result<CallReply, CallError> {
        let (job, answer) = Job::new(work, is_asking, deadline);
        self.shared.push(job)?;
        match answer.await {
            Ok(answer) => answer,
            // The link's task ended before it answered the job.
            Err(_) => Err(CallError::Lost("the link was closed".to_owned())),
        }
    }

    /// Whether jobs are sent at present.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.is_up.load(Ordering::Acquire)
    }

    /// Why they are not.
    pub(crate) fn problem(&self) -> String {
        self.shared.problem.lock().clone()
    }

    /// Since when they are not; `None` if they are.
    pub(crate) fn down_since(&self) -> Option<Timestamp> {
        *self.shared.down_since.lock()
    }

    /// Replaces the connection, because it leads to the wrong server.
    pub(crate) fn renew(&self) {
        self.shared.renew.notify_one();
    }

    /// The server that it is connected to.
    pub(crate) fn connected_to(&self) -> Option<RedisNode> {
        self.shared.connected_to.lock().clone()
    }

    /// Whether it was called recently.
    pub(crate) fn is_in_use(&self) -> bool {
        self.shared.asked_at.lock().elapsed() < IN_USE
    }

    /// How many jobs wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue.lock().jobs.len()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.is_up.store(false, Ordering::Release);
        self.shared.fail_waiting();
    }
}

impl LinkShared {
    fn new(target: LinkTarget, settings: LinkSettings) -> Self {
        Self {
            target,
            settings,
            queue: Mutex::default(),
            wake: Notify::new(),
            renew: Notify::new(),
            is_up: AtomicBool::new(false),
            problem: Mutex::new(NOT_YET.to_owned()),
            down_since: Mutex::new(Some(SystemClock.now())),
            room: AtomicU64::new(BATCH as u64 * 16),
            connected_to: Mutex::new(None),
            asked_at: Mutex::new(now()),
        }
    }

    fn push(&self, mut job: Job) -> Result<(), CallError> {
        let mut queue = self.queue.lock();
        // Under the lock, so that no job is left in the queue of a link that has gone down.
        if !self.is_up.load(Ordering::Acquire) {
            drop(queue);
            return Err(CallError::Down(self.problem.lock().clone()));
        }
        if queue.jobs.len() as u64 >= self.room.load(Ordering::Relaxed) {
            self.settings.stats.add(&self.settings.stats.shed);
            return Err(CallError::Down(
                "more calls wait than can be answered in time".to_owned(),
            ));
        }
        // Read under the lock, so that a stall before it cannot make the job late.
        job.asked_at = now();
        // A request that makes a further call after its deadline was stalled in between.
        if job.deadline <= job.asked_at {
            job.deadline = job.asked_at + self.settings.deadline;
        }
        *self.asked_at.lock() = job.asked_at;
        queue.push(job);
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    /// From now on jobs are sent.
    fn mark_up(&self) {
        let _queue = self.queue.lock();
        *self.down_since.lock() = None;
        self.is_up.store(true, Ordering::Release);
    }

    /// From now on jobs fail immediately, also those that wait.
    fn mark_down(&self, problem: String) {
        *self.problem.lock() = problem;
        self.down_since
            .lock()
            .get_or_insert_with(|| SystemClock.now());
        self.is_up.store(false, Ordering::Release);
        *self.connected_to.lock() = None;
        self.fail_waiting();
    }

    fn fail_waiting(&self) {
        let waiting = std::mem::take(&mut *self.queue.lock());
        if waiting.jobs.is_empty() {
            return;
        }
        let problem = self.problem.lock().clone();
        for mut job in waiting.jobs {
            job.answer(Err(CallError::Down(problem.clone())));
        }
    }
}

#[cfg(test)]
mod tests;
