//! Documents that all instances share, kept in Redis: the rules and the temporary overrides. Versions,
//! compare-and-set, and a hint when they change.
//!
//! The text of a document is opaque here. A hint may be lost, so followers also read the version from time to time.

use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, ToRedisArgs as _, Value, from_redis_value};
use tidegate_core::StoreError;

use crate::backoff::Backoff;
use crate::dial::{store_error, within};
use crate::monotonic::now;
use crate::store::RedisStore;

/// How long a reply may take. No decision waits for these.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait until a replica has the new version.
const REPLICA: Duration = Duration::from_millis(500);

/// Writes a version that follows another. A document without earlier versions has its text next to its version.
const WRITE: &str = "
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
if version ~= tonumber(ARGV[1]) then
  return {0, version}
end
version = version + 1
if #KEYS == 1 then
  redis.call('HSET', KEYS[1], 'text', ARGV[4])
end
for i = 2, #KEYS do
  redis.call('HSET', KEYS[i], version, ARGV[i + 2])
end
redis.call('HSET', KEYS[1], 'version', version)
local oldest = version - tonumber(ARGV[3])
for i = 2, #KEYS do
  for _, field in ipairs(redis.call('HKEYS', KEYS[i])) do
    if tonumber(field) <= oldest then
      redis.call('HDEL', KEYS[i], field)
    end
  end
end
redis.call('PUBLISH', ARGV[2], version)
return {1, version}
";

/// The result of writing a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It was written as this version.
    Version(u64),
    /// Another writer was faster: the document has this version, and nothing was written.
    Stale(u64),
}

/// A document that all instances share. The keys of all documents share a slot.
#[derive(Clone)]
pub struct RedisDocument {
    store: RedisStore,
    /// Its name in the log.
    what: &'static str,
    /// A hash: the version in force, and its text if earlier versions are not kept.
    current: String,
    /// If earlier versions are kept, two hashes: version → the text, and version → author, time and change.
    versions: Option<[String; 2]>,
    /// How many versions are kept, if earlier ones are.
    keep: usize,
}

impl RedisStore {
    /// The rules that all instances share. Keeps the last `keep` versions.
    pub fn shared_rules(&self, keep: usize) -> RedisDocument {
        RedisDocument {
            store: self.clone(),
            what: "the rules",
            current: self.document_key(""),
            versions: Some([self.document_key(":texts"), self.document_key(":rows")]),
            keep: keep.max(1),
        }
    }

    /// The temporary overrides that all instances share. Earlier versions are not kept.
    pub fn shared_overrides(&self) -> RedisDocument {
        RedisDocument {
            store: self.clone(),
            what: "the temporary overrides",
            current: self.document_key(":overrides"),
            versions: None,
            keep: 1,
        }
    }

    fn document_key(&self, end: &str) -> String {
        format!("{}:{{rules}}{end}", self.prefix())
    }

    /// Where each new version of a document is announced.
    fn document_channel(&self) -> String {
        format!("{}:rules", self.prefix())
    }

    /// Calls `changed` whenever Redis announces other rules or temporary overrides, and after each reconnection.
    /// Never ends.
    pub async fn follow_rules(&self, changed: impl Fn()) {
        let mut backoff = Backoff::new();
        let (key, channel) = (self.document_key(""), self.document_channel());
        loop {
            if let Ok(mut messages) = self.router().listen(&key).await
                && messages.subscribe(&channel).await.is_ok()
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
}

impl RedisDocument {
    /// The store that has it.
    pub fn store(&self) -> &RedisStore {
        &self.store
    }

    /// The version in force; zero if there is none.
    pub async fn version(&self) -> Result<u64, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(&self.current).arg("version");
        let version: Option<u64> = self.read(command).await?;
        Ok(version.unwrap_or(0))
    }

    /// The version in force and its text; version zero if there is none.
    pub async fn current(&self) -> Result<(u64, Option<String>), StoreError> {
        let mut command = redis::cmd("HMGET");
        command.arg(&self.current).arg("version").arg("text");
        let (version, text): (Option<u64>, Option<String>) = self.read(command).await?;
        match version.unwrap_or(0) {
            0 => Ok((0, None)),
            version if text.is_none() => Ok((version, self.text(version).await?)),
            version => Ok((version, text)),
        }
    }

    /// The text of a version; none if it is not kept.
    pub async fn text(&self, version: u64) -> Result<Option<String>, StoreError> {
        let Some([texts, _]) = &self.versions else {
            return Ok(None);
        };
        let mut command = redis::cmd("HGET");
        command.arg(texts).arg(version);
        self.read(command).await
    }

    /// Author, time and change of each version that is kept, newest first.
    pub async fn history(&self) -> Result<Vec<(u64, String)>, StoreError> {
        let Some([_, rows]) = &self.versions else {
            return Ok(Vec::new());
        };
        let mut command = redis::cmd("HGETALL");
        command.arg(rows);
        let rows: std::collections::HashMap<u64, String> = self.read(command).await?;
        let mut rows: Vec<(u64, String)> = rows.into_iter().collect();
        rows.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
        Ok(rows)
    }

    /// Writes a text, if it follows version `after`, zero if there was none. The `row` with author, time and change
    /// is kept with it if earlier versions are. With replicas, waits until one of them has it; a timeout of that is
    /// logged and is not an error.
    pub async fn write(&self, after: u64, text: &str, row: &str) -> Result<Written, StoreError> {
        let earlier = self.versions.as_ref().map_or(&[][..], |keys| &keys[..]);
        let mut command = redis::cmd("EVAL");
        command
            .arg(WRITE)
            .arg(1 + earlier.len())
            .arg(&self.current)
            .arg(earlier)
            .arg(after)
            .arg(self.store.document_channel())
            .arg(self.keep)
            .arg(text)
            .arg(row);
        // On a separate connection: `WAIT` blocks all other commands on it.
        let mut connection = self.store.router().dial(&self.current).await?;
        let written = within(PATIENCE, command.query_async(&mut connection)).await;
        let (is_written, version): (u64, u64) = written.map_err(|error| store_error(&error))?;
        if is_written == 0 {
            return Ok(Written::Stale(version));
        }
        if let Err(problem) = wait_for_replica(&mut connection).await {
            tracing::warn!(
                version,
                problem,
                "{} are written, and no replica has confirmed them; a failover now would lose them",
                self.what
            );
        }
        Ok(Written::Version(version))
    }

    async fn read<T: redis::FromRedisValue>(&self, command: redis::Cmd) -> Result<T, StoreError> {
        let deadline = now() + PATIENCE;
        let router = self.store.router();
        let value: Value = router.command(&self.current, command, deadline).await?;
        from_redis_value(value).map_err(|error| StoreError::BadReply(error.into()))
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
