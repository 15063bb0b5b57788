//! One call: sent, waited for, and its answers handed to those who asked.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::time::Instant;

use super::batch::{Batch, Question};
use crate::call::{CallError, Job, Reply, StepReply, is_no_script, is_read_only};
use crate::monotonic::now;
use crate::wire::{self, Step};

/// What came of a call by the deadline of those who asked.
pub(super) enum Flight {
    /// It has ended, after so long.
    Landed(End, Duration),
    /// They have gone; whether an answer still comes shows if the server is alive.
    Late(Pin<Box<dyn Future<Output = End> + Send>>),
}

/// What a call tells about the connection.
pub(super) enum End {
    /// It works.
    Answered,
    /// It works, and the server no longer takes writes.
    ReadOnly,
    /// It works, and the server does not do what it is asked.
    Refused(String),
    /// No answer came.
    Silent,
    /// It does not work any more.
    Lost(String),
}

/// Sends a batch and answers its jobs. An answer that takes longer than `deadline` is late, and is still
/// waited for until the server has been silent for `silence`: some jobs have more patience than decisions.
pub(super) async fn fly(
    connection: MultiplexedConnection,
    batch: Batch,
    (deadline, silence): (Duration, Duration),
) -> Flight {
    let sent_at = now();
    let Batch { question, jobs } = batch;
    let question = Arc::new(question);
    let mut answering = Box::pin(ask(connection, Arc::clone(&question)));
    let Ok(answer) = tokio::time::timeout_at(sent_at + deadline, answering.as_mut()).await else {
        return Flight::Late(Box::pin(async move {
            match tokio::time::timeout_at(sent_at + silence, answering).await {
                Ok(answer) => land(answer, &question, jobs, sent_at),
                Err(_) => End::Silent,
            }
        }));
    };
    let end = land(answer, &question, jobs, sent_at);
    Flight::Landed(end, sent_at.elapsed())
}

/// Answers the jobs, and tells what the answer says about the server.
fn land(
    answer: Result<Value, RedisError>,
    question: &Question,
    jobs: Vec<Job>,
    sent_at: Instant,
) -> End {
    match answer {
        Ok(value) => hand_out(value, question, jobs, sent_at),
        Err(error) => {
            let end = end_of(&error, question);
            let error = CallError::from(&error);
            for job in jobs {
                let _ = job.reply.send(Err(error.clone()));
            }
            end
        }
    }
}

fn end_of(error: &RedisError, question: &Question) -> End {
    if is_read_only(error) {
        return End::ReadOnly;
    }
    match CallError::from(error) {
        CallError::NotNow(problem) | CallError::Refused(problem)
            if matches!(question, Question::Steps { .. }) && !problem.contains("TRYAGAIN") =>
        {
            End::Refused(problem)
        }
        error if error.is_answer() => End::Answered,
        error => End::Lost(error.to_string()),
    }
}

async fn ask(
    mut connection: MultiplexedConnection,
    question: Arc<Question>,
) -> Result<Value, RedisError> {
    let connection = &mut connection;
    match &*question {
        Question::Steps { steps, is_asking } => {
            let steps: Vec<&Step> = steps.iter().map(AsRef::as_ref).collect();
            match send(connection, &wire::evalsha(&steps), *is_asking).await {
                // Nothing ran, so it can be sent again.
                Err(error) if is_no_script(&error) => {
                    send(connection, &wire::eval(&steps), *is_asking).await
                }
                answer => answer,
            }
        }
        Question::Command { command, is_asking } => send(connection, command, *is_asking).await,
    }
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

/// Hands the answers to those who asked, and tells what they say about the server.
fn hand_out(value: Value, question: &Question, jobs: Vec<Job>, sent_at: Instant) -> End {
    let steps = match question {
        Question::Command { .. } => {
            let mut value = Some(value);
            for job in jobs {
                let value = value.take().unwrap_or(Value::Nil);
                let _ = job.reply.send(Ok(Reply::Command(value)));
            }
            return End::Answered;
        }
        Question::Steps { steps, .. } => steps,
    };
    let steps: Vec<&Step> = steps.iter().map(AsRef::as_ref).collect();
    let (now, answers) = match wire::decode(&steps, value) {
        Ok(read) => read,
        Err(error) => {
            for job in jobs {
                let error = CallError::Unreadable(error.to_string());
                let _ = job.reply.send(Err(error));
            }
            return End::Answered;
        }
    };
    let (mut refused, mut is_read_only, mut has_answer) = (None, false, false);
    for (job, answer) in jobs.into_iter().zip(answers) {
        let answer = match answer {
            Ok(answer) => {
                has_answer = true;
                Ok(Reply::Step(StepReply {
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
        let _ = job.reply.send(answer);
    }
    match refused {
        _ if is_read_only => End::ReadOnly,
        Some(problem) if !has_answer => End::Refused(problem),
        _ => End::Answered,
    }
}
