//! A connection in use: sends queued jobs, hands out replies, and fails late jobs.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::{RedisError, Value};
use tokio::time::Instant;

use super::batch::{BatchBody, CallBatch};
use super::health::{BatchResult, CallTime, LinkHealth};
use super::sent::{SentBatch, ask};
use super::{LinkShared, SILENCE, batch};
use crate::dial::WatchedConnection;
use crate::monotonic::{PUNCTUAL, now};

/// How many calls may be under way: enough to keep the server busy, few enough that steps gather.
const CALLS: usize = 2;
/// The same in a cluster, where each slot has a call of its own.
const CALLS_IN_CLUSTER: usize = 64;
/// How long a connection may be idle before it is checked.
const IDLE: Duration = Duration::from_millis(500);

/// Serves until the connection is no longer to be used. Returns the reason.
pub(super) async fn serve(shared: &LinkShared, connected: WatchedConnection) -> String {
    let mut traffic = LinkTraffic::new(shared);
    let mut answering = FuturesUnordered::new();
    let mut timer = pin!(tokio::time::sleep(IDLE));
    // Read once per turn: a stall between two readings would count against the server.
    let mut at = now();
    loop {
        for (id, body) in traffic.send_waiting(at) {
            answering.push(ask(id, connected.connection.clone(), body));
        }
        let waiting = traffic.due();
        let due = waiting.unwrap_or(at + IDLE);
        timer.as_mut().reset(due);
        let answer = tokio::select! {
            biased;
            () = shared.renew.notified() => return "another server is the master now".to_owned(),
            Some(answer) = answering.next(), if !answering.is_empty() => Some(answer),
            () = shared.wake.notified() => None,
            () = timer.as_mut() => None,
        };
        at = now();
        let late = at.checked_duration_since(due);
        if let (Some(late), true) = (late, waiting.is_some())
            && let Some(again) = traffic.health.after_stall(late)
        {
            traffic.extend(late + again);
            if answer.is_none() {
                continue;
            }
        }
        let verdict = match (answer, late) {
            (Some((id, answer)), _) => traffic.complete(id, answer, at),
            // A connection that is not used would not notice its end.
            (None, Some(_)) if waiting.is_none() => {
                let (id, body) = traffic.send(batch::ping(), at);
                answering.push(ask(id, connected.connection.clone(), body));
                ControlFlow::Continue(())
            }
            // Arrived bytes are read before any job counts as late.
            (None, Some(_)) if connected.arrivals.are_waiting() && traffic.health.may_read() => {
                tokio::task::yield_now().await;
                ControlFlow::Continue(())
            }
            (None, _) => traffic.look(at),
        };
        if let ControlFlow::Break(problem) = verdict {
            return problem;
        }
    }
}

/// The batches under way on a connection, and its health.
struct LinkTraffic<'s> {
    shared: &'s LinkShared,
    batches: Vec<SentBatch>,
    /// How many calls may be under way, not counting late ones.
    most: usize,
    silence: Duration,
    sent: u64,
    health: LinkHealth,
    call_time: CallTime,
    /// Whether a job that came since the last turn could have been sent immediately.
    had_room: bool,
}

impl<'s> LinkTraffic<'s> {
    fn new(shared: &'s LinkShared) -> Self {
        let settings = &shared.settings;
        Self {
            shared,
            batches: Vec::new(),
            most: if settings.is_cluster {
                CALLS_IN_CLUSTER
            } else {
                CALLS
            },
            silence: SILENCE.max(settings.deadline),
            sent: 0,
            health: LinkHealth::new(settings.deadline),
            call_time: CallTime::default(),
            had_room: true,
        }
    }

    /// Takes the jobs from the queue that can be sent now.
    fn send_waiting(&mut self, now: Instant) -> Vec<(u64, Arc<BatchBody>)> {
        let settings = &self.shared.settings;
        if self.had_room {
            // The waiting jobs could have been sent immediately: this process was late.
            let mut queue = self.shared.queue.lock();
            let waited = queue
                .jobs
                .front()
                .map(|job| now.saturating_duration_since(job.asked_at));
            if let Some(waited) = waited.filter(|waited| *waited > PUNCTUAL) {
                queue.extend(waited);
            }
        }
        let mut sent = Vec::new();
        let on_time = self.batches.iter().filter(|batch| !batch.is_late);
        let mut on_time = on_time.count();
        while on_time < self.most {
            let earliest = now + self.call_time.expected(settings.deadline);
            let batches = {
                let mut queue = self.shared.queue.lock();
                queue.take(settings.is_cluster, earliest)
            };
            if batches.is_empty() {
                break;
            }
            on_time += batches.len();
            for batch in batches {
                settings.stats.add(&settings.stats.calls);
                let jobs = batch.jobs.len() as u64;
                settings.stats.add_many(&settings.stats.steps, jobs);
                sent.push(self.send(batch, now));
            }
        }
        self.had_room = on_time < self.most;
        sent
    }

    fn send(&mut self, batch: CallBatch, now: Instant) -> (u64, Arc<BatchBody>) {
        self.sent += 1;
        let patience = (self.shared.settings.deadline, self.silence);
        let batch = SentBatch::new(self.sent, batch, now, patience);
        let body = batch.body();
        self.batches.push(batch);
        (self.sent, body)
    }

    /// When to look at waiting jobs next.
    fn due(&self) -> Option<Instant> {
        let queued = self.shared.queue.lock().due;
        let due = self.batches.iter().map(|batch| batch.due);
        due.chain(queued).min()
    }

    /// Gives all waiting jobs more time.
    fn extend(&mut self, by: Duration) {
        self.shared.queue.lock().extend(by);
        for batch in &mut self.batches {
            batch.extend(by);
        }
    }

    /// Fails late jobs. Breaks with the reason if the connection is no longer to be used.
    fn look(&mut self, now: Instant) -> ControlFlow<String> {
        self.shared.queue.lock().expire(now);
        let mut verdict = ControlFlow::Continue(());
        for index in 0..self.batches.len() {
            if let Some(result) = self.batches[index].look(now) {
                let observed = self.observe(result);
                verdict = if verdict.is_break() {
                    verdict
                } else {
                    observed
                };
            }
        }
        verdict
    }

    /// Hands out a reply. Breaks with the reason if the connection is no longer to be used.
    fn complete(
        &mut self,
        id: u64,
        answer: Result<Value, RedisError>,
        now: Instant,
    ) -> ControlFlow<String> {
        let Some(index) = self.batches.iter().position(|batch| batch.id == id) else {
            return ControlFlow::Continue(());
        };
        let batch = self.batches.swap_remove(index);
        let took = batch.took(now);
        let result = batch.complete(answer);
        if result == (BatchResult::Answered { is_late: false }) {
            self.call_time.learn(took);
            let deadline = self.shared.settings.deadline;
            let room = self.call_time.room(deadline, self.most);
            self.shared.room.store(room, Ordering::Relaxed);
        }
        self.observe(result)
    }

    fn observe(&mut self, result: BatchResult) -> ControlFlow<String> {
        if matches!(result, BatchResult::Late | BatchResult::Refused(_)) {
            let stats = &self.shared.settings.stats;
            stats.add(&stats.failures);
        }
        self.health.observe(result)
    }
}
