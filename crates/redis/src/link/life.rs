//! The life of a link: connect, check that the script runs, serve until something is wrong, start over.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

use super::serve::serve;
use super::{LinkShared, LinkTarget};
use crate::backoff::Backoff;
use crate::call::CallError;
use crate::dial::{Role, WatchedConnection, explain, within};
use crate::monotonic::now;
use tidegate_redis_wire::wire;

/// The oldest Redis whose commands the script can use.
const OLDEST: u32 = 7;

/// Fails waiting jobs when the link's task ends, however it ends.
struct Ending<'s>(&'s LinkShared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.mark_down("the link was closed".to_owned());
    }
}

/// Connects and serves forever.
pub(super) async fn live(shared: Arc<LinkShared>) {
    let _ending = Ending(&shared);
    let mut backoff = Backoff::new();
    loop {
        match connect(&shared).await {
            Ok(connected) => {
                shared.mark_up();
                let up_since = now();
                let problem = serve(&shared, connected).await;
                shared.mark_down(problem.clone());
                shared.settings.stats.add(&shared.settings.stats.falls);
                tracing::warn!(server = %name(&shared), problem, "Redis does not answer; deciding without it");
                // A connection that worked for a while is replaced without delay.
                if up_since.elapsed() > Duration::from_secs(1) {
                    backoff = Backoff::new();
                }
            }
            Err(problem) => {
                let is_new = *shared.problem.lock() != problem;
                if is_new {
                    tracing::warn!(server = %name(&shared), problem, "Redis cannot be used");
                }
                shared.mark_down(problem);
            }
        }
        let wait = backoff.next_by(shared.settings.dialer.chance());
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.renew.notified() => {}
        }
    }
}

fn name(shared: &LinkShared) -> String {
    match &shared.target {
        LinkTarget::Node(node) => node.to_string(),
        LinkTarget::MasterOf(sentinels) => format!("master `{}`", &sentinels.name),
    }
}

/// A connection to a master on which the script has run.
async fn connect(shared: &LinkShared) -> Result<WatchedConnection, String> {
    let settings = &shared.settings;
    let node = match &shared.target {
        LinkTarget::Node(node) => node.clone(),
        LinkTarget::MasterOf(sentinels) => sentinels.master().await?,
    };
    let explained = |error: RedisError| format!("{node}: {}", explain(&error, Role::Server));
    let connected = settings
        .dialer
        .dial_watched(&node)
        .await
        .map_err(explained)?;
    let mut connection = connected.connection.clone();
    let timeout = settings.dialer.timeout();
    if !settings.is_cluster {
        let role = redis::cmd("ROLE");
        let role: Result<Value, RedisError> =
            within(timeout, role.query_async(&mut connection)).await;
        // Without permission for `ROLE`, a replica is noticed by the first write.
        if let Ok(role) = role
            && !is_master(&role)
        {
            return Err(format!("{node} is a replica; a master is needed"));
        }
    }
    // Runs the same script within the same deadline as a decision.
    let probe: Result<Value, RedisError> = within(
        timeout,
        wire::eval::<redis::Cmd>(&[]).query_async(&mut connection),
    )
    .await;
    probe.map_err(explained)?;
    let patience = settings.deadline.min(timeout);
    let step = &settings.probe;
    let probe: redis::Cmd = wire::evalsha(&[step]);
    let probe: Result<Value, RedisError> =
        within(patience, probe.query_async(&mut connection)).await;
    match probe {
        Ok(value) => {
            let decoded = wire::decode(&[step], &value);
            let (_, outcomes) = decoded.map_err(|error| format!("{node}: {error}"))?;
            if let Some(Err(error)) = outcomes.first() {
                return Err(format!("{node}: {error}"));
            }
        }
        // It has other slots, and it answers.
        Err(error) if settings.is_cluster && is_redirect(&error) => {}
        Err(error) => return Err(explained(error)),
    }
    look_at(&mut connection, timeout)
        .await
        .map_err(|problem| format!("{node}: {problem}"))?;
    settings.stats.add(&settings.stats.connects);
    *shared.connected_to.lock() = Some(node.clone());
    tracing::info!(server = %node, "connected to Redis");
    Ok(connected)
}

/// Refuses servers that are too old, and warns of those that evict keys: an evicted counter resets its
/// limit.
async fn look_at(connection: &mut MultiplexedConnection, timeout: Duration) -> Result<(), String> {
    let info: Result<String, RedisError> =
        within(timeout, redis::cmd("INFO").query_async(connection)).await;
    // Without permission for `INFO`, the server is used unchecked.
    let info = info.unwrap_or_default();
    let field = |name: &str| {
        info.lines()
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
            "this is Redis {version}; version {OLDEST} or later is needed"
        ));
    }
    if let Some(policy) = field("maxmemory_policy")
        && policy != "noeviction"
    {
        tracing::warn!(
            policy,
            "this Redis evicts keys when it is full, and an evicted counter resets its limit; set `maxmemory-policy noeviction`"
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
