//! A batch that was sent: when it is late, and how its reply is handed to its jobs.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::time::Instant;

use super::batch::{BatchBody, CallBatch};
use super::health::BatchResult;
use crate::call::{CallError, CallReply, Job, StepReply, is_no_script, is_read_only};
use tidegate_redis_wire::wire::{self, LuaStep};

/// A batch under way.
pub(super) struct SentBatch {
    pub(super) id: u64,
    body: Arc<BatchBody>,
    jobs: Vec<Job>,
    sent_at: Instant,
    /// When it becomes a failure.
    late_at: Instant,
    /// Until when an answer is waited for: for `silence` after it was sent.
    silent_at: Instant,
    silence: Duration,
    pub(super) is_late: bool,
    /// When to look at it next.
    pub(super) due: Instant,
    /// The time in which this process did not run.
    stalled: Duration,
}

impl SentBatch {
    /// A batch that is sent at `sent_at`. A reply that takes longer than `deadline` is late, and is still
    /// waited for until the server has been silent for `silence`: some jobs have longer deadlines.
    pub(super) fn new(
        id: u64,
        batch: CallBatch,
        sent_at: Instant,
        (deadline, silence): (Duration, Duration),
    ) -> Self {
        let late_at = sent_at + deadline;
        let mut batch = Self {
            id,
            body: Arc::new(batch.body),
            jobs: batch.jobs,
            sent_at,
            late_at,
            silent_at: sent_at + silence,
            silence,
            is_late: false,
            due: late_at,
            stalled: Duration::ZERO,
        };
        batch.due = batch.next_due();
        batch
    }

    pub(super) fn body(&self) -> Arc<BatchBody> {
        Arc::clone(&self.body)
    }

    /// For how long it has been under way, without the time in which this process did not run.
    pub(super) fn took(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.sent_at)
            .saturating_sub(self.stalled)
    }

    /// Gives it more time.
    pub(super) fn extend(&mut self, by: Duration) {
        for job in &mut self.jobs {
            job.deadline += by;
        }
        self.late_at += by;
        self.silent_at += by;
        self.due += by;
        self.stalled += by;
    }

    /// Fails the jobs whose deadline has passed. Returns a result for the server's health, if there is one.
    pub(super) fn look(&mut self, now: Instant) -> Option<BatchResult> {
        if now < self.due {
            return None;
        }
        for job in self.jobs.iter_mut().filter(|job| job.deadline <= now) {
            job.answer(Err(CallError::Late));
        }
        let result = if self.silent_at <= now {
            Some(BatchResult::Silent(self.silence))
        } else if !self.is_late && self.late_at <= now {
            self.is_late = true;
            Some(BatchResult::Late)
        } else {
            None
        };
        self.due = self.next_due();
        result
    }

    fn next_due(&self) -> Instant {
        let end = if self.is_late {
            self.silent_at
        } else {
            self.late_at
        };
        let waiting = self.jobs.iter().filter(|job| !job.is_answered());
        waiting.map(|job| job.deadline).fold(end, Instant::min)
    }

    /// Answers the jobs. Returns the result for the server's health.
    pub(super) fn complete(self, answer: Result<Value, RedisError>) -> BatchResult {
        match answer {
            Ok(value) => self.hand_out(value),
            Err(error) => {
                let result = self.result_of(&error);
                let error = CallError::from(&error);
                for mut job in self.jobs {
                    job.answer(Err(error.clone()));
                }
                result
            }
        }
    }

    /// Gives each job its answer.
    fn hand_out(self, value: Value) -> BatchResult {
        let answered = self.answered();
        let steps = match &*self.body {
            BatchBody::Command { .. } => {
                let mut value = Some(value);
                for mut job in self.jobs {
                    let value = value.take().unwrap_or(Value::Nil);
                    job.answer(Ok(CallReply::Command(value)));
                }
                return answered;
            }
            BatchBody::Steps { steps, .. } => steps,
        };
        let steps: Vec<&LuaStep> = steps.iter().map(AsRef::as_ref).collect();
        let (now, answers) = match wire::decode(&steps, &value) {
            Ok(read) => read,
            Err(error) => {
                for mut job in self.jobs {
                    let error = CallError::Unreadable(error.to_string());
                    job.answer(Err(error));
                }
                return answered;
            }
        };
        let sent_at = self.sent_at;
        let (mut refused, mut is_read_only, mut has_answer) = (None, false, false);
        for (mut job, answer) in self.jobs.into_iter().zip(answers) {
            let answer = match answer {
                Ok(answer) => {
                    has_answer = true;
                    Ok(CallReply::Step(StepReply {
                        answer,
                        now,
                        sent_at,
                    }))
                }
                Err(error) => {
                    is_read_only |= error.code() == "READONLY";
                    let error = CallError::of_step(&error);
                    match &error {
                        CallError::NotNow(problem) | CallError::Refused(problem) => {
                            refused.get_or_insert_with(|| problem.clone());
                        }
                        _ => has_answer = true,
                    }
                    Err(error)
                }
            };
            job.answer(answer);
        }
        match refused {
            _ if is_read_only => BatchResult::ReadOnly,
            Some(problem) if !has_answer => BatchResult::Refused(problem),
            _ => answered,
        }
    }

    fn answered(&self) -> BatchResult {
        let is_late = self.is_late;
        BatchResult::Answered { is_late }
    }

    fn result_of(&self, error: &RedisError) -> BatchResult {
        if is_read_only(error) {
            return BatchResult::ReadOnly;
        }
        let is_steps = matches!(*self.body, BatchBody::Steps { .. });
        match CallError::from(error) {
            CallError::NotNow(problem) | CallError::Refused(problem)
                if is_steps && !problem.contains("TRYAGAIN") =>
            {
                BatchResult::Refused(problem)
            }
            error if error.is_answer() => self.answered(),
            error => BatchResult::Lost(error.to_string()),
        }
    }
}

/// Sends a batch. Returns its reply, with its id.
pub(super) async fn ask(
    id: u64,
    mut connection: MultiplexedConnection,
    body: Arc<BatchBody>,
) -> (u64, Result<Value, RedisError>) {
    let connection = &mut connection;
    let answer = match &*body {
        BatchBody::Steps { steps, is_asking } => {
            let steps: Vec<&LuaStep> = steps.iter().map(AsRef::as_ref).collect();
            match send(connection, &wire::evalsha(&steps), *is_asking).await {
                // Nothing ran, so it can be sent again.
                Err(error) if is_no_script(&error) => {
                    send(connection, &wire::eval(&steps), *is_asking).await
                }
                answer => answer,
            }
        }
        BatchBody::Command { command, is_asking } => send(connection, command, *is_asking).await,
    };
    (id, answer)
}

async fn send(
    connection: &mut MultiplexedConnection,
    command: &redis::Cmd,
    is_asking: bool,
) -> Result<Value, RedisError> {
    if !is_asking {
        return command.query_async(connection).await;
    }
    // One right after the other on the same connection.
    let mut other = connection.clone();
    let asking = redis::cmd("ASKING");
    let (_, answer) = futures_util::future::join(
        asking.query_async::<Value>(&mut other),
        command.query_async(connection),
    )
    .await;
    answer
}
