//! The activity of each instance, published for the others as opaque bytes.
//!
//! Uses a connection of its own: a decision never waits behind a large value.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError};
use tidegate_core::StoreError;
use tokio::sync::Mutex;

use crate::dial::{store_error, within};
use crate::router::Router;
use tidegate_redis_wire::namespace::{self, Namespace};

/// The most bytes that an instance publishes, and that are read of one.
pub const MOST_ACTIVITY: usize = 64 << 10;
/// How long published activity lasts, in milliseconds.
const LASTS: u64 = 30_000;
/// The most instances that are read.
const MOST_INSTANCES: usize = 256;
/// How long the seed of the instances lasts after the last of them published, in milliseconds.
const SEED_LASTS: u64 = 24 * 60 * 60 * 1_000;
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Uses the clock of Redis, because those of the instances may differ. A key of a type that no version uses is
/// replaced, and so is a seed that is none. Returns the seed: the one that is there, else that of the caller.
const PUBLISH: &str = "
local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'zset' and found ~= 'none' then
  redis.call('DEL', KEYS[1])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -ARGV[4] - 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local seed = ARGV[5]
if redis.call('TYPE', KEYS[3]).ok == 'string' and redis.call('STRLEN', KEYS[3]) == #seed then
  local found = redis.call('GET', KEYS[3])
  if not string.find(found, '%X') then
    seed = found
  end
end
redis.call('SET', KEYS[3], seed, 'PX', ARGV[6])
return seed
";

const READ: &str = "
if redis.call('TYPE', KEYS[1]).ok ~= 'string' or redis.call('STRLEN', KEYS[1]) > tonumber(ARGV[1]) then
  return { '', 0 }
end
return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]) }
";

/// The published activity of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedActivity {
    /// The id of the instance.
    pub instance: String,
    /// How long ago.
    pub age: Duration,
    /// The bytes. Not trusted: another program may write to this Redis.
    pub bytes: Vec<u8>,
}

/// Where activity is in Redis, and the connection for it. All keys share a slot.
pub(crate) struct ActivityBoard {
    /// A sorted set: each instance, with the time until which its activity lasts.
    index: String,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl ActivityBoard {
    pub(crate) fn new(namespace: Option<&Namespace>) -> Self {
        Self {
            index: format!("{}:{{activity}}", namespace::prefix(namespace)),
            connection: Mutex::new(None),
        }
    }

    fn key_of(&self, name: &str) -> String {
        format!("{}:{name}", self.index)
    }

    /// Publishes the activity of an instance. Returns the seed that the instances share, which is `seed` if there was
    /// none.
    pub(crate) async fn publish(
        &self,
        router: &Router,
        instance: &str,
        bytes: &[u8],
        seed: u128,
    ) -> Result<u128, StoreError> {
        let mut command = redis::cmd("EVAL");
        command
            .arg(PUBLISH)
            .arg(3)
            .arg(&self.index)
            .arg(self.key_of(instance))
            .arg(self.key_of("seed"))
            .arg(instance)
            .arg(bytes)
            .arg(LASTS)
            .arg(MOST_INSTANCES)
            .arg(format!("{seed:032x}"))
            .arg(SEED_LASTS);
        let shared: String = self.command(router, &command).await?;
        // The script returns nothing else.
        Ok(u128::from_str_radix(&shared, 16).unwrap_or(seed))
    }

    /// Reads the activity of the instances other than `own`.
    pub(crate) async fn read(
        &self,
        router: &Router,
        own: &str,
    ) -> Result<Vec<PublishedActivity>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(&self.index).arg(0).arg(MOST_INSTANCES - 1);
        let instances: Vec<Vec<u8>> = self.command(router, &command).await?;
        let names = instances
            .into_iter()
            .filter_map(|name| String::from_utf8(name).ok());
        let mut published = Vec::new();
        for instance in names.filter(|name| is_instance(name) && name != own) {
            let mut command = redis::cmd("EVAL");
            let key = self.key_of(&instance);
            command.arg(READ).arg(1).arg(key).arg(MOST_ACTIVITY);
            let (bytes, left): (Vec<u8>, i64) = self.command(router, &command).await?;
            let left = u64::try_from(left).unwrap_or(0);
            if bytes.is_empty() || left == 0 {
                continue;
            }
            let age = Duration::from_millis(LASTS.saturating_sub(left));
            published.push(PublishedActivity {
                instance,
                age,
                bytes,
            });
        }
        Ok(published)
    }

    /// Withdraws the activity of an instance.
    pub(crate) async fn withdraw(&self, router: &Router, instance: &str) -> Result<(), StoreError> {
        let mut remove = redis::cmd("ZREM");
        remove.arg(&self.index).arg(instance);
        let _: u64 = self.command(router, &remove).await?;
        let mut delete = redis::cmd("DEL");
        delete.arg(self.key_of(instance));
        let _: u64 = self.command(router, &delete).await?;
        Ok(())
    }

    /// Sends a command over the connection, which is opened on first use, and again after a failure.
    async fn command<T: FromRedisValue>(
        &self,
        router: &Router,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => router.dial(&self.index).await?,
        };
        let reply: Result<T, RedisError> =
            within(PATIENCE, command.query_async(&mut connection)).await;
        let reply = reply.map_err(|error| store_error(&error))?;
        // After an error another server may have the slot.
        *slot = Some(connection);
        Ok(reply)
    }
}

/// Whether a name can be that of an instance: eight hexadecimal digits.
pub fn is_instance(name: &str) -> bool {
    name.len() == 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
