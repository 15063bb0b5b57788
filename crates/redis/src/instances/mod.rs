//! How many instances share this Redis: each announces itself and reads the others' announcements.
//!
//! `roster.rs` decides which instances count.

mod roster;

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tidegate_core::PermitId;
use tokio::time::Instant;

use self::roster::Roster;
pub(crate) use crate::known_instances::KnownInstances;
use crate::monotonic::now;
use crate::router::Router;
use tidegate_redis_wire::namespace::{self, Namespace};

/// How often an instance announces itself.
const EVERY: Duration = Duration::from_millis(300);
/// How long an announcement counts, in milliseconds: a few may be lost.
const COUNTS_FOR: u64 = 2_000;
/// A pause between two replies counts for no more than this: Redis was unreachable for the rest of it.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long Redis records that an instance has left, in milliseconds: as long as others could count it.
const LEFT_FOR: u64 = 15 * 60 * 1_000;
/// More names than this are read only when their number has changed, and every [`READ_EVERY`] announcements.
const ALWAYS_READ: u64 = 32;
/// After how many announcements all names are read.
const READ_EVERY: u64 = 10;

/// Uses the clock of Redis, because those of the instances may differ. Returns the number of instances; also
/// their names and those that have left, if there are few or their number is not the one that the caller
/// knows. Keys of a type that no version uses are replaced; the last number says how many.
const ANNOUNCE: &str = "
local replaced = 0
for _, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key).ok
  if found ~= 'zset' and found ~= 'none' then
    replaced = replaced + redis.call('DEL', key)
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('PEXPIREAT', KEYS[1], now + ARGV[2] + 1)
local count = redis.call('ZCARD', KEYS[1])
if count > tonumber(ARGV[4]) and count == tonumber(ARGV[3]) then
  return { count }
end
local left = redis.call('ZRANGEBYSCORE', KEYS[2], now, '+inf')
return { count, redis.call('ZRANGE', KEYS[1], 0, -1), left, replaced }
";

const LEAVE: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('PEXPIREAT', KEYS[2], now + ARGV[2] + 1)
return 1
";

/// This instance and those that share Redis with it.
#[derive(Debug)]
pub(crate) struct Instances {
    /// A sorted set: the name of each instance, and when its announcement ends in milliseconds.
    key: String,
    /// The same for instances that have left, and when that record ends.
    left_key: String,
    id: PermitId,
    /// The id and a part that is different in every run.
    name: String,
    roster: Mutex<RosterState>,
    /// Whether this instance has left. Locked during calls, so that nothing is announced after leaving.
    has_left: tokio::sync::Mutex<bool>,
    /// How many count. Zero while that is unknown.
    count: AtomicU64,
    /// How many were present when Redis last answered. Zero before that.
    present: AtomicU64,
    /// How often Redis answered.
    answers: AtomicU64,
}

#[derive(Debug)]
struct RosterState {
    roster: Roster,
    last_at: Option<Instant>,
    /// How many there are by the last reply, and how many replies ago their names were read.
    card: u64,
    read_ago: u64,
}

/// The reply to an announcement.
#[derive(Debug)]
struct AnnounceReply {
    card: u64,
    names: Option<(Vec<String>, Vec<String>)>,
    /// Whether a key had to be replaced.
    has_replaced: bool,
}

impl Instances {
    pub(crate) fn new(namespace: Option<&Namespace>, known: KnownInstances) -> Self {
        let prefix = namespace::prefix(namespace);
        let id = known.id.unwrap_or_else(PermitId::random);
        let run = PermitId::random().as_u128() >> 96;
        let name = format!("{id}-{run:08x}");
        let is_known = !known.instances.is_empty();
        let roster = Roster::new(&name, known.instances);
        let count = if is_known { roster.count() } else { 0 };
        Self {
            key: format!("{prefix}:{{instances}}"),
            left_key: format!("{prefix}:{{instances}}:left"),
            id,
            name,
            roster: Mutex::new(RosterState {
                roster,
                last_at: None,
                card: 0,
                read_ago: 0,
            }),
            has_left: tokio::sync::Mutex::new(false),
            count: AtomicU64::new(count),
            present: AtomicU64::new(0),
            answers: AtomicU64::new(0),
        }
    }

    /// How many share this Redis, as far as is known: those that were present when it last answered, and those
    /// that went missing recently.
    pub(crate) fn count(&self) -> Option<u64> {
        Some(self.count.load(Ordering::Relaxed)).filter(|count| *count > 0)
    }

    /// How many were present when Redis last answered.
    pub(crate) fn present(&self) -> Option<u64> {
        Some(self.present.load(Ordering::Relaxed)).filter(|present| *present > 0)
    }

    /// The data to keep for the next run, and how often Redis has answered so far. The others are unknown until it has.
    pub(crate) fn known(&self) -> (KnownInstances, u64) {
        let answers = self.answers.load(Ordering::Relaxed);
        let is_known = answers > 0 || self.count().is_some();
        let instances = if is_known {
            self.roster.lock().roster.known()
        } else {
            Vec::new()
        };
        let id = Some(self.id);
        (KnownInstances { id, instances }, answers)
    }

    async fn announce(&self, router: &Router) {
        let known = {
            let state = self.roster.lock();
            if state.read_ago >= READ_EVERY {
                0
            } else {
                state.card
            }
        };
        let mut command = redis::cmd("EVAL");
        command
            .arg(ANNOUNCE)
            .arg(2)
            .arg(&self.key)
            .arg(&self.left_key);
        command.arg(&self.name).arg(COUNTS_FOR);
        command.arg(known).arg(ALWAYS_READ);
        let has_left = self.has_left.lock().await;
        if *has_left {
            return;
        }
        let asked_at = now();
        let answer = router.command(&self.key, command, asked_at + EVERY).await;
        if let Some(answer) = answer.ok().and_then(AnnounceReply::read) {
            if answer.has_replaced {
                tracing::warn!(
                    key = self.key,
                    "the list of servers in Redis had a type that no version uses; it was removed and is rebuilt"
                );
            }
            self.record(answer, asked_at);
        }
    }

    fn record(&self, answer: AnnounceReply, at: Instant) {
        let mut state = self.roster.lock();
        let passed = state.last_at.map_or(Duration::ZERO, |last_at| {
            at.saturating_duration_since(last_at).min(LONGEST_PAUSE)
        });
        state.last_at = Some(at);
        state.card = answer.card;
        if let Some((present, left)) = answer.names {
            state.read_ago = 0;
            state.roster.update(present, &left, passed);
        } else {
            state.read_ago += 1;
            state.roster.unchanged(passed);
        }
        self.count.store(state.roster.count(), Ordering::Relaxed);
        self.present
            .store(state.roster.present(), Ordering::Relaxed);
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that this instance has left, so that the others no longer count it.
    pub(crate) async fn leave(&self, router: &Router) {
        let mut command = redis::cmd("EVAL");
        command.arg(LEAVE).arg(2).arg(&self.key).arg(&self.left_key);
        command.arg(&self.name).arg(LEFT_FOR);
        let mut has_left = self.has_left.lock().await;
        *has_left = true;
        // If that fails, the others count it until it has been missing for long enough.
        let _ = router.command(&self.key, command, now() + EVERY).await;
    }
}

impl AnnounceReply {
    fn read(value: Value) -> Option<Self> {
        let Value::Array(values) = value else {
            return None;
        };
        let mut values = values.into_iter();
        let Some(Value::Int(card)) = values.next() else {
            return None;
        };
        let names = match (values.next(), values.next()) {
            (Some(present), Some(left)) => Some((names(present)?, names(left)?)),
            _ => None,
        };
        Some(Self {
            card: u64::try_from(card).ok()?,
            names,
            has_replaced: matches!(values.next(), Some(Value::Int(replaced)) if replaced > 0),
        })
    }
}

fn names(value: Value) -> Option<Vec<String>> {
    let Value::Array(values) = value else {
        return None;
    };
    let name = |value| match value {
        Value::BulkString(name) => Some(String::from_utf8_lossy(&name).into_owned()),
        Value::SimpleString(name) => Some(name),
        _ => None,
    };
    values.into_iter().map(name).collect()
}

/// Announces and counts until the owner is dropped.
pub(crate) async fn keep_counting<T>(owner: Weak<T>, parts: impl Fn(&T) -> (&Instances, &Router)) {
    loop {
        {
            let Some(owner) = owner.upgrade() else {
                return;
            };
            let (instances, router) = parts(&owner);
            if router.is_up() {
                instances.announce(router).await;
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
