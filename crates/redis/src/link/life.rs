//! The life of a link: connect, prove that the script runs, send until something is wrong, begin again.

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
use crate::wire;

/// The oldest Redis whose commands the script can use.
const OLDEST: u32 = 7;

/// Fails what waits when the link's task ends, however it ends.
struct Ending<'s>(&'s LinkShared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.mark_down("the link was closed".to_owned());
    }
}

/// Connects and serves for ever.
pub(super) async fn live(shared: Arc<LinkShared>) {
    let _ending = Ending(&shared);
    let mut backoff = Backoff::new();
    loop {
        match connect(&shared).await {
            Ok(connected) => {
                shared.mark_up();
                let risen = now();
                let problem = serve(&shared, connected).await;
                shared.mark_down(problem.clone());
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
                shared.mark_down(problem);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next()) => {}
            () = shared.renew.notified() => {}
        }
    }
}

fn name(shared: &LinkShared) -> String {
    match &shared.settings.target {
        LinkTarget::Node(node) => node.to_string(),
        LinkTarget::MasterOf(sentinels) => format!("master `{}`", sentinels.name()),
    }
}

/// A connection to a master on which the script has run.
async fn connect(shared: &LinkShared) -> Result<WatchedConnection, String> {
    let settings = &shared.settings;
    let node = match &settings.target {
        LinkTarget::Node(node) => node.clone(),
        LinkTarget::MasterOf(sentinels) => sentinels.master().await?,
    };
    let told = |error: RedisError| format!("{node}: {}", explain(&error, Role::Server));
    let connected = settings.dialer.dial_watched(&node).await.map_err(told)?;
    let mut connection = connected.connection.clone();
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
    Ok(connected)
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
