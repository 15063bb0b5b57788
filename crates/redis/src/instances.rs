//! How many instances share this Redis: each announces itself and counts the others.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::time::Instant;

use crate::monotonic::now;
use crate::router::Router;

/// How often an instance says that it is there.
const EVERY: Duration = Duration::from_millis(300);
/// How long its word counts, in milliseconds: long enough for a few that are lost.
const COUNTS_FOR: u64 = 2_000;
/// A sorted set: the name of each instance, and when its word ends in milliseconds.
const KEY: &str = "tg:{instances}";

/// All instances read one clock, that of Redis, so theirs may differ.
const ANNOUNCE: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('PEXPIREAT', KEYS[1], now + ARGV[2] + 1)
return redis.call('ZCARD', KEYS[1])
";

/// This instance and how many there are with it.
#[derive(Debug)]
pub(crate) struct Instances {
    name: String,
    /// Zero while nobody has counted.
    count: AtomicU64,
    /// Until when others may not have come back yet, so that fewer than before means nothing.
    gathering_until: Mutex<Instant>,
}

impl Instances {
    pub(crate) fn new() -> Self {
        Self {
            name: tidegate_core::LeaseId::random().to_string(),
            count: AtomicU64::new(0),
            gathering_until: Mutex::new(now()),
        }
    }

    /// How many there are, as far as is known.
    pub(crate) fn count(&self) -> Option<u64> {
        Some(self.count.load(Ordering::Relaxed)).filter(|count| *count > 0)
    }

    async fn announce(&self, router: &Router) {
        let mut command = redis::cmd("EVAL");
        command.arg(ANNOUNCE).arg(1).arg(KEY);
        command.arg(&self.name).arg(COUNTS_FOR);
        let deadline = now() + EVERY;
        let counted = router.command(KEY, command, deadline).await;
        if let Ok(Value::Int(count)) = counted {
            let mut count = u64::try_from(count).unwrap_or(0);
            if now() < *self.gathering_until.lock() {
                count = count.max(self.count.load(Ordering::Relaxed));
            }
            self.count.store(count, Ordering::Relaxed);
        } else {
            self.lost_sight();
        }
    }

    /// Redis is away: when it is back, the others need a while to announce themselves again.
    fn lost_sight(&self) {
        *self.gathering_until.lock() = now() + Duration::from_millis(COUNTS_FOR) + EVERY;
    }

    /// Says that this instance is gone.
    pub(crate) async fn leave(&self, router: &Router) {
        let mut command = redis::cmd("ZREM");
        command.arg(KEY).arg(&self.name);
        let deadline = now() + EVERY;
        // If that fails, it stops counting by itself.
        let _ = router.command(KEY, command, deadline).await;
    }
}

/// Announces and counts until whoever is asked for has gone.
pub(crate) async fn keep_counting<T>(owner: Weak<T>, parts: impl Fn(&T) -> (&Instances, &Router)) {
    loop {
        {
            let Some(owner) = owner.upgrade() else {
                return;
            };
            let (instances, router) = parts(&owner);
            if router.is_up() {
                instances.announce(router).await;
            } else {
                instances.lost_sight();
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
