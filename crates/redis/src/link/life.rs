//! The life of a link: connect, prove that the script runs, send until something is wrong, begin again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

use super::flight::{End, Flight, fly};
use super::{BATCH, Shared, Target, batch};
use crate::backoff::Backoff;
use crate::call::CallError;
use crate::dial::{Role, within};
use crate::monotonic::now;
use crate::wire;

/// How many calls are under way at once: enough to keep the server busy, few enough that steps gather.
const FLIGHTS: usize = 2;
/// The same where each slot has a call of its own.
const FLIGHTS_IN_CLUSTER: usize = 64;
/// The oldest Redis whose commands the script can use.
const OLDEST: u32 = 7;
/// How many calls may fail with none that succeeds between them.
const FAILURES: u32 = 5;
/// How long a connection may lie idle before it is tried.
const IDLE: Duration = Duration::from_millis(500);
/// How long a server may be silent while it is asked.
const SILENCE: Duration = Duration::from_millis(100);

/// Connects and serves for ever.
pub(super) async fn live(shared: Arc<Shared>) {
    let mut backoff = Backoff::new();
    loop {
        match connect(&shared).await {
            Ok(connection) => {
                shared.rise();
                let risen = now();
                let problem = serve(&shared, connection).await;
                shared.fall(problem.clone());
                shared.settings.stats.add(&shared.settings.stats.falls);
                tracing::warn!(server = %name(&shared), problem, "Redis does not answer; going on without it");
                // What worked for a while is tried again at once.
                if risen.elapsed() > Duration::from_secs(1) {
                    backoff = Backoff::new();
                }
            }
            Err(problem) => {
                let is_new = *shared.problem.lock() != problem;
                if is_new {
                    tracing::warn!(server = %name(&shared), problem, "Redis cannot be used");
                }
                shared.fall(problem);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next()) => {}
            () = shared.renew.notified() => {}
        }
    }
}

fn name(shared: &Shared) -> String {
    match &shared.settings.target {
        Target::Node(node) => node.to_string(),
        Target::MasterOf(sentinels) => format!("master `{}`", sentinels.name()),
    }
}

/// A connection to a master on which the script has run.
async fn connect(shared: &Shared) -> Result<MultiplexedConnection, String> {
    let settings = &shared.settings;
    let node = match &settings.target {
        Target::Node(node) => node.clone(),
        Target::MasterOf(sentinels) => sentinels.master().await?,
    };
    let told = |error: RedisError| format!("{node}: {error}");
    let mut connection = settings
        .dialer
        .dial(&node, Role::Server)
        .await
        .map_err(told)?;
    let timeout = settings.dialer.timeout();
    if !settings.is_cluster {
        let role = redis::cmd("ROLE");
        let role: Result<Value, RedisError> =
            within(timeout, role.query_async(&mut connection)).await;
        // A user that may not ask for the role finds out by the first write.
        if let Ok(role) = role
            && !is_master(&role)
        {
            return Err(format!("{node} is a replica, and its master is wanted"));
        }
    }
    // What is measured here is what decisions will meet: the same script within the same deadline.
    let probe: Result<Value, RedisError> =
        within(timeout, wire::eval(&[]).query_async(&mut connection)).await;
    probe.map_err(told)?;
    let patience = settings.deadline.min(timeout);
    let step = &settings.probe;
    let probe = wire::evalsha(&[step]);
    let probe: Result<Value, RedisError> =
        within(patience, probe.query_async(&mut connection)).await;
    match probe {
        Ok(value) => match wire::decode(&[step], value) {
            Ok((_, answers)) => {
                if let Some(Err(error)) = answers.first() {
                    return Err(format!("{node}: {error}"));
                }
            }
            Err(error) => return Err(format!("{node}: {error}")),
        },
        // It answers for other slots, and that is answer enough.
        Err(error) if settings.is_cluster && is_redirect(&error) => {}
        Err(error) => return Err(told(error)),
    }
    look_at(&mut connection, timeout)
        .await
        .map_err(|problem| format!("{node}: {problem}"))?;
    settings.stats.add(&settings.stats.connects);
    *shared.connected_to.lock() = Some(node.clone());
    tracing::info!(server = %node, "connected to Redis");
    Ok(connection)
}

/// Refuses servers that are too old, and warns of those that evict keys: they would give whole limits
/// back to those who have used them up.
async fn look_at(connection: &mut MultiplexedConnection, timeout: Duration) -> Result<(), String> {
    let told: Result<String, RedisError> =
        within(timeout, redis::cmd("INFO").query_async(connection)).await;
    // A user that may not ask finds out otherwise.
    let told = told.unwrap_or_default();
    let field = |name: &str| {
        told.lines()
            .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
    };
    let version = field("redis_version").unwrap_or_default();
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    if let Some(major) = major
        && u32::cmp(&major, &OLDEST).is_lt()
    {
        return Err(format!(
            "this is Redis {version}, and version {OLDEST} or later is needed"
        ));
    }
    if let Some(policy) = field("maxmemory_policy")
        && policy != "noeviction"
    {
        tracing::warn!(
            policy,
            "this Redis evicts keys when it is full, and a counter that is evicted is a limit that is whole again; set `maxmemory-policy noeviction`"
        );
    }
    Ok(())
}

fn is_redirect(error: &RedisError) -> bool {
    matches!(
        CallError::from(error),
        CallError::Moved(_) | CallError::Ask(_) | CallError::NotNow(_)
    )
}

fn is_master(role: &Value) -> bool {
    match role {
        Value::Array(parts) => match parts.first() {
            Some(Value::BulkString(name)) => name == b"master",
            Some(Value::SimpleString(name)) => name == "master",
            _ => true,
        },
        _ => true,
    }
}

/// Sends what gathers in the queue, until something is wrong; tells what.
async fn serve(shared: &Shared, connection: MultiplexedConnection) -> String {
    let settings = &shared.settings;
    let silence = SILENCE.max(settings.deadline);
    let most = if settings.is_cluster {
        FLIGHTS_IN_CLUSTER
    } else {
        FLIGHTS
    };
    let mut flights = FuturesUnordered::new();
    let mut late = FuturesUnordered::new();
    let mut failures: u32 = 0;
    let mut expected = Expected::default();
    loop {
        while flights.len() < most {
            let batches = {
                let mut queue = shared.queue.lock();
                // Never so long that nothing would be sent and nothing learned.
                let earliest = now() + expected.call.min(settings.deadline / 2);
                batch::take(&mut queue, settings.is_cluster, earliest)
            };
            if batches.is_empty() {
                break;
            }
            for batch in batches {
                settings.stats.add(&settings.stats.calls);
                let jobs = batch.jobs.len() as u64;
                settings.stats.add_many(&settings.stats.steps, jobs);
                flights.push(fly(connection.clone(), batch, (settings.deadline, silence)));
            }
        }
        let end = tokio::select! {
            biased;
            () = shared.renew.notified() => return "another server is the master now".to_owned(),
            Some(flight) = flights.next(), if !flights.is_empty() => match flight {
                Flight::Landed(End::Answered, took) => {
                    failures = 0;
                    expected.learn(took);
                    let room = expected.room(settings.deadline, most);
                    shared.room.store(room, Ordering::Relaxed);
                    continue;
                }
                Flight::Landed(end, _) => end,
                Flight::Late(rest) => {
                    late.push(rest);
                    failures += 1;
                    settings.stats.add(&settings.stats.failures);
                    if failures >= FAILURES {
                        return format!("{failures} calls in a row were not answered in time");
                    }
                    continue;
                }
            },
            Some(end) = late.next(), if !late.is_empty() => end,
            () = shared.wake.notified() => continue,
            // A connection that nobody uses would not notice its end.
            () = tokio::time::sleep(IDLE), if flights.is_empty() && late.is_empty() => {
                let ping = batch::ping();
                flights.push(fly(connection.clone(), ping, (settings.deadline, silence)));
                continue;
            }
        };
        match end {
            End::Answered => {}
            End::Refused(problem) => {
                failures += 1;
                settings.stats.add(&settings.stats.failures);
                if failures >= FAILURES {
                    return problem;
                }
            }
            End::ReadOnly => return "it has become a replica".to_owned(),
            End::Silent => return format!("it was silent for {silence:?}"),
            End::Lost(problem) => return problem,
        }
    }
}

/// How long calls take, as far as the latest of them tell.
#[derive(Default)]
struct Expected {
    call: Duration,
}

impl Expected {
    fn learn(&mut self, took: Duration) {
        self.call = (self.call * 7 + took) / 8;
    }

    /// How many steps may wait so that the last of them is answered within `deadline`, if it takes as
    /// long as it did of late.
    fn room(&self, deadline: Duration, flights: usize) -> u64 {
        let call = self.call.max(Duration::from_micros(20)).as_micros();
        let rounds = (deadline.as_micros() / call).max(1);
        let steps = rounds.saturating_mul(flights.min(8) as u128 * BATCH as u128);
        u64::try_from(steps).unwrap_or(u64::MAX)
    }
}
