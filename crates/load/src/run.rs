//! Sends the load: a task for each lane, until the plan ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::clock;
use crate::error::LoadRunError;
use crate::keys::KeyStream;
use crate::pace::LoadPace;
use crate::plan::{LoadEnd, LoadPlan};
use crate::protocol::{Lane, Target};
use crate::record::LoadRecord;
use crate::report::LoadReport;

/// How often progress is reported.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// How long a lane waits before it connects again after an error.
const RECONNECT_AFTER: Duration = Duration::from_millis(50);
/// Lanes share this many records, so that they rarely wait for each other.
const RECORDS: usize = 16;

/// How far a run has come.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LoadProgress {
    /// Since the warm-up ended; zero before.
    pub elapsed: Duration,
    /// How much of the plan is done, from 0 to 1.
    pub done: f64,
    /// Requests that were answered since the warm-up.
    pub answered: u64,
    /// Whether the warm-up is still under way.
    pub is_warming_up: bool,
}

/// Sends the load of `plan` to `target`, and reports its progress every tenth of a second.
///
/// An error if the plan is invalid or the first request gets no answer. Later errors are counted.
pub async fn run(
    plan: &LoadPlan,
    target: &Target,
    mut progress: impl FnMut(LoadProgress),
) -> Result<LoadReport, LoadRunError> {
    plan.validate()?;
    if plan.in_flight > 1 && matches!(target, Target::Http(_)) {
        let problem = "HTTP/1.1 has one request in flight on each connection; use more connections";
        return Err(LoadRunError::Invalid(problem.to_owned()));
    }
    probe(plan, target).await?;
    let shared = Arc::new(SharedLoad {
        pace: LoadPace::start(plan),
        records: (0..RECORDS)
            .map(|_| Mutex::new(LoadRecord::new()))
            .collect(),
        answered: AtomicU64::new(0),
        timeout: plan.timeout,
        // In an open loop each request has its own time.
        together: match (target, plan.rate) {
            (Target::Resp(_), None) => plan.in_flight,
            _ => 1,
        },
    });
    let mut lanes = spawn(plan, target, &shared);
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    // Requests in flight at the end may still be answered.
    let give_up = shared.pace.last_due().map(|at| at + plan.timeout);
    loop {
        tokio::select! {
            lane = lanes.join_next() => if lane.is_none() {
                break;
            },
            _ = ticks.tick() => {
                progress(shared.progress(plan));
                if give_up.is_some_and(|at| clock::now() >= at) {
                    shared.pace.close();
                    lanes.shutdown().await;
                    break;
                }
            }
        }
    }
    let ended = clock::now();
    progress(shared.progress(plan));
    let mut record = LoadRecord::new();
    for shard in &shared.records {
        record.add(&shard.lock());
    }
    let measured = ended.saturating_duration_since(shared.pace.counts_from);
    Ok(LoadReport::new(
        plan,
        target,
        &record,
        measured,
        shared.pace.unsent(),
    ))
}

/// Sends one request, to find out whether the target answers at all.
async fn probe(plan: &LoadPlan, target: &Target) -> Result<(), LoadRunError> {
    async fn send(mut lane: impl Lane, key: u64, timeout: Duration) -> Result<(), LoadRunError> {
        let keys = [key];
        let sent = tokio::time::timeout(timeout, lane.exchange(&keys, |_| ()));
        sent.await
            .map_err(|_| LoadRunError::TimedOut(timeout.as_secs()))?
    }
    let key = plan.keys.source().stream(plan.seed).next();
    match target {
        Target::Http(target) => send(target.lane(), key, plan.timeout).await,
        Target::Resp(target) => send(target.lane(), key, plan.timeout).await,
        Target::Grpc(target) => {
            for lane in target.lanes(1) {
                send(lane, key, plan.timeout).await?;
            }
            Ok(())
        }
    }
}

fn spawn(plan: &LoadPlan, target: &Target, shared: &Arc<SharedLoad>) -> JoinSet<()> {
    let mut lanes = JoinSet::new();
    let source = plan.keys.source();
    let mut index = 0;
    let mut part = || {
        index += 1;
        LanePart {
            shared: Arc::clone(shared),
            keys: source.stream(plan.seed.wrapping_add(index)),
            record: usize::try_from(index).unwrap_or(0) % RECORDS,
        }
    };
    // Commands that are sent together share a lane; in an open loop each has its own.
    let resp_lanes = plan.in_flight / shared.together;
    for _ in 0..plan.connections {
        match target {
            Target::Http(target) => {
                lanes.spawn(drive(target.lane(), part()));
            }
            Target::Resp(target) => {
                for _ in 0..resp_lanes {
                    lanes.spawn(drive(target.lane(), part()));
                }
            }
            Target::Grpc(target) => {
                for lane in target.lanes(plan.in_flight) {
                    lanes.spawn(drive(lane, part()));
                }
            }
        }
    }
    lanes
}

/// The state of one lane.
struct LanePart {
    shared: Arc<SharedLoad>,
    keys: KeyStream,
    /// Which of the records it adds to.
    record: usize,
}

/// The state that all lanes share.
struct SharedLoad {
    pace: LoadPace,
    records: Vec<Mutex<LoadRecord>>,
    answered: AtomicU64,
    timeout: Duration,
    /// How many requests a lane sends together.
    together: usize,
}

impl SharedLoad {
    fn progress(&self, plan: &LoadPlan) -> LoadProgress {
        let now = clock::now();
        let elapsed = now.saturating_duration_since(self.pace.counts_from);
        let answered = self.answered.load(Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
        let done = match plan.end {
            LoadEnd::After(span) => elapsed.as_secs_f64() / span.as_secs_f64(),
            LoadEnd::Requests(requests) => answered as f64 / requests as f64,
        };
        LoadProgress {
            elapsed,
            done: done.min(1.0),
            answered,
            is_warming_up: !self.pace.counts(now),
        }
    }
}

/// Sends one request after the other until the plan ends.
async fn drive(mut lane: impl Lane, part: LanePart) {
    let LanePart {
        shared,
        mut keys,
        record,
    } = part;
    let Some(record) = shared.records.get(record) else {
        return;
    };
    let mut together: Vec<u64> = Vec::with_capacity(shared.together);
    let mut began = Vec::with_capacity(shared.together);
    loop {
        together.clear();
        began.clear();
        while together.len() < shared.together {
            let Some(at) = shared.pace.next().await else {
                break;
            };
            together.push(keys.next());
            began.push(at);
        }
        if together.is_empty() {
            return;
        }
        let mut answered = 0;
        let note = |answer| {
            if let Some(at) = began.get(answered).filter(|at| shared.pace.counts(**at)) {
                let latency = clock::now().saturating_duration_since(*at);
                record.lock().answered(answer, latency);
                shared.answered.fetch_add(1, Ordering::Relaxed);
            }
            answered += 1;
        };
        let sent = tokio::time::timeout(shared.timeout, lane.exchange(&together, note)).await;
        let timed_out = || LoadRunError::TimedOut(shared.timeout.as_secs());
        if let Err(error) = sent.unwrap_or_else(|_| Err(timed_out())) {
            let lost = began.iter().skip(answered);
            let lost = lost.filter(|at| shared.pace.counts(**at)).count() as u64;
            if lost > 0 {
                record.lock().failed(error.kind(), lost);
            }
            lane.disconnect();
            tokio::time::sleep(RECONNECT_AFTER).await;
        }
    }
}
