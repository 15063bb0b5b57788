//! The rules of all instances and their temporary overrides, kept in Redis: versions, compare-and-set, and a hint
//! when they change.
//!
//! The text of either is opaque here. A hint may be lost, so followers also read the version from time to time.

use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, ToRedisArgs as _, Value, from_redis_value};
use tidegate_core::StoreError;

use crate::RedisStore;
use crate::backoff::Backoff;
use crate::dial::within;
use crate::monotonic::now;
use crate::namespace::{self, Namespace};

/// How long a reply may take. No decision waits for these.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a replica has to take over what was written.
const REPLICA: Duration = Duration::from_millis(500);

const WRITE: &str = "
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
if version ~= tonumber(ARGV[1]) then
  return {0, version}
end
version = version + 1
redis.call('HSET', KEYS[2], version, ARGV[2])
redis.call('HSET', KEYS[3], version, ARGV[3])
redis.call('HSET', KEYS[1], 'version', version)
local oldest = version - tonumber(ARGV[4])
for _, key in ipairs({KEYS[2], KEYS[3]}) do
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if tonumber(field) <= oldest then
      redis.call('HDEL', key, field)
    end
  end
end
redis.call('PUBLISH', ARGV[5], version)
return {1, version}
";

const WRITE_OVERRIDES: &str = "
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
if version ~= tonumber(ARGV[1]) then
  return {0, version}
end
version = version + 1
redis.call('HSET', KEYS[1], 'version', version, 'text', ARGV[2])
redis.call('PUBLISH', ARGV[3], version)
return {1, version}
";

/// Where the rules of a deployment are in Redis. All keys share a slot.
#[derive(Debug)]
pub(crate) struct RuleNames {
    /// A hash: the version in force.
    current: String,
    /// A hash: version → the rules, as text.
    texts: String,
    /// A hash: version → author, time and change, as text.
    rows: String,
    /// A hash: the temporary overrides as text, and their version.
    overrides: String,
    /// Where each new version of either is announced.
    channel: String,
}

impl RuleNames {
    pub(crate) fn new(namespace: Option<&Namespace>) -> Self {
        let prefix = namespace::prefix(namespace);
        Self {
            current: format!("{prefix}:{{rules}}"),
            texts: format!("{prefix}:{{rules}}:texts"),
            rows: format!("{prefix}:{{rules}}:rows"),
            overrides: format!("{prefix}:{{rules}}:overrides"),
            channel: format!("{prefix}:rules"),
        }
    }
}

/// A version that is to follow another.
#[derive(Debug, Clone, Copy)]
pub struct NewRules<'a> {
    /// The version that it was made from; zero if there was none.
    pub after: u64,
    /// The rules.
    pub text: &'a str,
    /// Author, time and change.
    pub row: &'a str,
    /// How many versions are kept.
    pub keep: usize,
}

/// The result of writing rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// They were written as this version.
    Version(u64),
    /// Another writer was faster: the rules have this version, and nothing was written.
    Stale(u64),
}

impl RedisStore {
    /// The version of the rules that all instances share; zero if there are none.
    pub async fn rules_version(&self) -> Result<u64, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(&self.rule_names().current).arg("version");
        let version: Option<u64> = read(self.rules_command(command).await?)?;
        Ok(version.unwrap_or(0))
    }

    /// The rules of a version; none if it is not kept.
    pub async fn rules_text(&self, version: u64) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(&self.rule_names().texts).arg(version);
        read(self.rules_command(command).await?)
    }

    /// Author, time and change of each version that is kept, newest first.
    pub async fn rules_history(&self) -> Result<Vec<(u64, String)>, StoreError> {
        let mut command = redis::cmd("HGETALL");
        command.arg(&self.rule_names().rows);
        let rows: std::collections::HashMap<u64, String> =
            read(self.rules_command(command).await?)?;
        let mut rows: Vec<(u64, String)> = rows.into_iter().collect();
        rows.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
        Ok(rows)
    }

    /// Writes rules, if they follow the version in force. With replicas, waits until one of them has the rules;
    /// a timeout of that is logged and is not an error.
    pub async fn write_rules(&self, new: NewRules<'_>) -> Result<Written, StoreError> {
        let names = self.rule_names();
        let mut command = redis::cmd("EVAL");
        command
            .arg(WRITE)
            .arg(3)
            .arg(&names.current)
            .arg(&names.texts)
            .arg(&names.rows)
            .arg(new.after)
            .arg(new.text)
            .arg(new.row)
            .arg(new.keep.max(1))
            .arg(&names.channel);
        self.write_next(command, "the rules").await
    }

    /// Runs a script that writes a version if it follows the one in force.
    async fn write_next(
        &self,
        command: redis::Cmd,
        what: &'static str,
    ) -> Result<Written, StoreError> {
        // On a separate connection: `WAIT` blocks all other commands on it.
        let mut connection = self.router().dial(&self.rule_names().current).await?;
        let written = within(PATIENCE, command.query_async(&mut connection)).await;
        let (is_written, version): (u64, u64) = written.map_err(|error| store_error(&error))?;
        if is_written == 0 {
            return Ok(Written::Stale(version));
        }
        if let Err(problem) = wait_for_replica(&mut connection).await {
            tracing::warn!(
                version,
                problem,
                "{what} are written, and no replica has confirmed them; a failover now would lose them"
            );
        }
        Ok(Written::Version(version))
    }

    /// The version of the temporary overrides that all instances share; zero if there are none.
    pub async fn overrides_version(&self) -> Result<u64, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(&self.rule_names().overrides).arg("version");
        let version: Option<u64> = read(self.rules_command(command).await?)?;
        Ok(version.unwrap_or(0))
    }

    /// The temporary overrides that all instances share, with their version; none if there never were any.
    pub async fn overrides_text(&self) -> Result<Option<(u64, String)>, StoreError> {
        let mut command = redis::cmd("HMGET");
        command
            .arg(&self.rule_names().overrides)
            .arg("version")
            .arg("text");
        let (version, text): (Option<u64>, Option<String>) =
            read(self.rules_command(command).await?)?;
        Ok(version.zip(text))
    }

    /// Writes temporary overrides, if they follow version `after`, zero if there was none. Waits for a replica as
    /// [`write_rules`](Self::write_rules) does.
    pub async fn write_overrides(&self, after: u64, text: &str) -> Result<Written, StoreError> {
        let names = self.rule_names();
        let mut command = redis::cmd("EVAL");
        command
            .arg(WRITE_OVERRIDES)
            .arg(1)
            .arg(&names.overrides)
            .arg(after)
            .arg(text)
            .arg(&names.channel);
        self.write_next(command, "the temporary overrides").await
    }

    /// Calls `changed` whenever Redis announces other rules or temporary overrides, and after each reconnection.
    /// Never ends.
    pub async fn follow_rules(&self, changed: impl Fn()) {
        let mut backoff = Backoff::new();
        let names = self.rule_names();
        loop {
            if let Ok(mut messages) = self.router().listen(&names.current).await
                && messages.subscribe(&names.channel).await.is_ok()
            {
                backoff = Backoff::new();
                changed();
                let mut messages = messages.into_on_message();
                while messages.next().await.is_some() {
                    changed();
                }
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    async fn rules_command(&self, command: redis::Cmd) -> Result<Value, StoreError> {
        let deadline = now() + PATIENCE;
        let key = &self.rule_names().current;
        self.router().command(key, command, deadline).await
    }
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, StoreError> {
    from_redis_value(value).map_err(|error| StoreError::BadReply(error.into()))
}

pub(crate) fn store_error(error: &RedisError) -> StoreError {
    let is_lost = error.is_io_error();
    let error = Box::new(error.clone());
    if is_lost {
        StoreError::Lost(error)
    } else {
        StoreError::Unreachable(error)
    }
}

async fn wait_for_replica(connection: &mut MultiplexedConnection) -> Result<(), String> {
    let mut command = redis::cmd("INFO");
    command.arg("replication");
    let info: Result<String, RedisError> = within(PATIENCE, command.query_async(connection)).await;
    let info = info.map_err(|error| error.to_string())?;
    let replicas = info
        .lines()
        .find_map(|line| line.trim().strip_prefix("connected_slaves:"))
        .and_then(|count| count.parse::<u64>().ok());
    if replicas.unwrap_or(0) == 0 {
        return Ok(());
    }
    let millis = u64::try_from(REPLICA.as_millis()).unwrap_or(u64::MAX);
    let mut command = redis::cmd("WAIT");
    command.arg(1).arg(millis.to_redis_args());
    let confirmed: Result<u64, RedisError> =
        within(PATIENCE, command.query_async(connection)).await;
    match confirmed {
        Ok(0) => Err(format!("none answered within {REPLICA:?}")),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
