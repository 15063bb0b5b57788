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
    /// No answer came.
    Silent,
    /// It does not work any more.
    Lost(String),
}

/// Sends a batch and answers its jobs. An answer that is late is still waited for, up to `silence`.
pub(super) async fn fly(
    connection: MultiplexedConnection,
    batch: Batch,
    silence: Duration,
) -> Flight {
    let sent_at = now();
    let deadline = batch.deadline();
    let Batch { question, jobs } = batch;
    let question = Arc::new(question);
    let mut answering = Box::pin(ask(connection, Arc::clone(&question)));
    let Ok(answer) = tokio::time::timeout_at(deadline, answering.as_mut()).await else {
        return Flight::Late(Box::pin(async move {
            match tokio::time::timeout_at(sent_at + silence, answering).await {
                Ok(Ok(_)) => End::Answered,
                Ok(Err(error)) => end_of(&error),
                Err(_) => End::Silent,
            }
        }));
    };
    let end = match answer {
        Ok(value) => hand_out(value, &question, jobs, sent_at),
        Err(error) => {
            let end = end_of(&error);
            let error = CallError::from(&error);
            for job in jobs {
                let _ = job.reply.send(Err(error.clone()));
            }
            end
        }
    };
    Flight::Landed(end, sent_at.elapsed())
}

fn end_of(error: &RedisError) -> End {
    if is_read_only(error) {
        return End::ReadOnly;
    }
    match CallError::from(error) {
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
    let mut both = redis::pipe();
    both.cmd("ASKING").ignore().add_command(command.clone());
    let mut answers: Vec<Value> = both.query_async(connection).await?;
    Ok(answers.pop().unwrap_or(Value::Nil))
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
    let mut end = End::Answered;
    for (job, answer) in jobs.into_iter().zip(answers) {
        if let Err(error) = &answer
            && error.code() == "READONLY"
        {
            end = End::ReadOnly;
        }
        let answer = answer
            .map(|answer| {
                Reply::Step(StepReply {
                    answer,
                    now,
                    sent_at,
                })
            })
            .map_err(|error| CallError::of_step(&error));
        let _ = job.reply.send(answer);
    }
    end
}
