//! Batches: the jobs at the head of the queue, combined into calls.

use std::collections::VecDeque;
use std::sync::Arc;

use redis::Cmd;
use tokio::time::Instant;

use super::BATCH;
use crate::call::{CallBody, CallError, Job};
use tidegate_redis_wire::wire::LuaStep;

/// Jobs that share one call.
pub(super) struct CallBatch {
    pub(super) body: BatchBody,
    pub(super) jobs: Vec<Job>,
}

/// The content of a batch.
pub(super) enum BatchBody {
    /// Steps, one for each job.
    Steps {
        steps: Vec<Arc<LuaStep>>,
        is_asking: bool,
    },
    /// A command, for a single job.
    Command { command: Arc<Cmd>, is_asking: bool },
}

/// A call that only shows whether the connection is alive.
pub(super) fn ping() -> CallBatch {
    CallBatch {
        body: BatchBody::Command {
            command: Arc::new(redis::cmd("PING")),
            is_asking: false,
        },
        jobs: Vec::new(),
    }
}

/// Why a job was not sent.
pub(super) fn too_late() -> CallError {
    CallError::Down("it could not be answered in time".to_owned())
}

/// Takes jobs from the head of the queue: as many as fit into one call, or in a cluster into one call for
/// each slot. Jobs that could not be answered before their deadline fail instead.
pub(super) fn take(
    queue: &mut VecDeque<Job>,
    is_cluster: bool,
    earliest_answer: Instant,
) -> Vec<CallBatch> {
    let mut batches: Vec<CallBatch> = Vec::new();
    let mut slots: Vec<Option<u16>> = Vec::new();
    let mut taken = 0;
    while taken < BATCH
        && let Some(mut job) = queue.pop_front()
    {
        if job.deadline < earliest_answer {
            job.answer(Err(too_late()));
            continue;
        }
        // A charge whose caller has gone is not sent; steps that must be made in any case are.
        let is_owed = matches!(&job.work, CallBody::Step(step) if step.is_owed());
        if !job.is_open() && !is_owed {
            continue;
        }
        taken += 1;
        let is_asking = job.is_asking;
        let step = match &job.work {
            CallBody::Step(step) => Arc::clone(step),
            CallBody::Command(command) => {
                let command = Arc::clone(command);
                batches.push(CallBatch {
                    body: BatchBody::Command { command, is_asking },
                    jobs: vec![job],
                });
                slots.push(None);
                continue;
            }
        };
        let slot = Some(if is_cluster { step.slot() } else { 0 });
        let fits = |batch: &CallBatch| match &batch.body {
            BatchBody::Steps { is_asking: is, .. } => *is == is_asking,
            BatchBody::Command { .. } => false,
        };
        let index = (0..batches.len()).find(|at| slots[*at] == slot && fits(&batches[*at]));
        if let Some(CallBatch {
            body: BatchBody::Steps { steps, .. },
            jobs,
        }) = index.map(|index| &mut batches[index])
        {
            steps.push(step);
            jobs.push(job);
        } else {
            let steps = vec![step];
            batches.push(CallBatch {
                body: BatchBody::Steps { steps, is_asking },
                jobs: vec![job],
            });
            slots.push(slot);
        }
    }
    batches
}
