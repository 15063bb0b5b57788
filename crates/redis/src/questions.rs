//! Questions that instances ask each other, as opaque bytes: an instance waits for those that are for it, and the one
//! that asks waits for the answer.
//!
//! Each side uses a connection of its own, because it waits in Redis. Nothing here is trusted: another program may
//! write to this Redis. A question that is old by the clock of Redis is not answered, because its caller is gone.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError};
use tidegate_core::StoreError;

use crate::activity::is_instance;
use crate::backoff::Backoff;
use crate::dial::{store_error, within};
use crate::store::RedisStore;

/// The most bytes of a question.
pub const MOST_QUESTION: usize = 1 << 20;
/// The most bytes of an answer: as many, and a few for what is in front of them.
const MOST_ANSWER: usize = MOST_QUESTION + 64;
/// How many questions may wait for one instance.
const MOST_WAITING: usize = 16;
/// How old a question may be that is answered, in milliseconds.
const LASTS: u64 = 2_000;
/// How long an answer lasts, in milliseconds.
const ANSWER_LASTS: u64 = 10_000;
/// How long the answer is waited for.
const WAIT: Duration = Duration::from_secs(2);
/// How long an instance waits for a question until it waits again, so that a dead connection is noticed.
const IDLE: Duration = Duration::from_secs(5);
/// How much longer than that, or than immediately, a reply may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The bytes in the id of a question; as text twice as many.
const ID: usize = 16;

/// Puts the time and the id in front of a question. A key of another type is replaced.
const ASK: &str = "
local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'list' and found ~= 'none' then
  redis.call('DEL', KEYS[1])
end
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('RPUSH', KEYS[1], string.format('%.0f', now) .. ' ' .. ARGV[1] .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
";

const ANSWER: &str = "
redis.call('DEL', KEYS[1])
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
";

/// A question as it was read.
#[derive(Debug, PartialEq, Eq)]
struct ReadQuestion<'b> {
    /// By the clock of Redis, in milliseconds.
    asked_at: u64,
    id: &'b str,
    bytes: &'b [u8],
}

impl<'b> ReadQuestion<'b> {
    /// None if this program did not write it.
    fn parse(item: &'b [u8]) -> Option<Self> {
        let mut words = item.splitn(3, |byte| *byte == b' ');
        let asked_at = str::from_utf8(words.next()?).ok()?;
        let id = str::from_utf8(words.next()?).ok()?;
        let bytes = words.next()?;
        let is_id = id.len() == 2 * ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_id && bytes.len() <= MOST_QUESTION).then_some(Self {
            asked_at: asked_at.parse().ok()?,
            id,
            bytes,
        })
    }
}

impl RedisStore {
    /// Asks another instance, and waits 2 seconds for its answer. None if it has not answered by then, or if too many
    /// questions wait for it.
    pub async fn ask_instance(
        &self,
        instance: &str,
        question: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        if !is_instance(instance) || question.len() > MOST_QUESTION {
            return Ok(None);
        }
        let Some(id) = random_id() else {
            return Ok(None);
        };
        let asked = self.asked_key(instance);
        let mut connection = self.router().dial(&asked).await?;
        let mut command = redis::cmd("EVAL");
        command
            .arg(ASK)
            .arg(1)
            .arg(&asked)
            .arg(&id)
            .arg(question)
            .arg(MOST_WAITING)
            .arg(LASTS);
        let is_asked: u64 = call(&mut connection, &command, PATIENCE).await?;
        if is_asked == 0 {
            return Ok(None);
        }
        let answer = pop(&mut connection, &self.answer_key(&id), WAIT).await?;
        Ok(answer.filter(|answer| answer.len() <= MOST_ANSWER))
    }

    /// Answers the questions for an instance, one after the other. Never ends.
    pub async fn answer_questions<F: Future<Output = Vec<u8>>>(
        &self,
        instance: &str,
        answer: impl Fn(Vec<u8>) -> F,
    ) {
        let mut backoff = Backoff::new();
        loop {
            if let Ok(mut connection) = self.router().dial(&self.asked_key(instance)).await {
                while self
                    .answer_next(&mut connection, instance, &answer)
                    .await
                    .is_ok()
                {
                    backoff = Backoff::new();
                }
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Waits for a question, and answers it if it is recent.
    async fn answer_next<F: Future<Output = Vec<u8>>>(
        &self,
        connection: &mut MultiplexedConnection,
        instance: &str,
        answer: impl Fn(Vec<u8>) -> F,
    ) -> Result<(), StoreError> {
        let Some(item) = pop(connection, &self.asked_key(instance), IDLE).await? else {
            return Ok(());
        };
        let Some(question) = ReadQuestion::parse(&item) else {
            tracing::debug!("a question of another instance cannot be read");
            return Ok(());
        };
        let time: (u64, u64) = call(connection, &redis::cmd("TIME"), PATIENCE).await?;
        let now = time.0.saturating_mul(1_000).saturating_add(time.1 / 1_000);
        if now.saturating_sub(question.asked_at) > LASTS {
            tracing::debug!("a question of another instance is too old");
            return Ok(());
        }
        let answer = answer(question.bytes.to_vec()).await;
        let mut command = redis::cmd("EVAL");
        command
            .arg(ANSWER)
            .arg(1)
            .arg(self.answer_key(question.id))
            .arg(answer)
            .arg(ANSWER_LASTS);
        let _: u64 = call(connection, &command, PATIENCE).await?;
        Ok(())
    }

    /// A list of the questions for an instance.
    fn asked_key(&self, instance: &str) -> String {
        format!("{}:{{activity}}:{instance}:asked", self.prefix())
    }

    /// A list with the answer to a question. All of these keys share a slot.
    fn answer_key(&self, id: &str) -> String {
        format!("{}:{{activity}}:answer:{id}", self.prefix())
    }
}

/// Waits for the first item of a list, and removes it.
async fn pop(
    connection: &mut MultiplexedConnection,
    key: &str,
    wait: Duration,
) -> Result<Option<Vec<u8>>, StoreError> {
    let mut command = redis::cmd("BLPOP");
    command.arg(key).arg(wait.as_secs());
    let popped: Option<(Vec<u8>, Vec<u8>)> = call(connection, &command, wait + PATIENCE).await?;
    Ok(popped.map(|(_, item)| item))
}

async fn call<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: &redis::Cmd,
    patience: Duration,
) -> Result<T, StoreError> {
    let reply: Result<T, RedisError> = within(patience, command.query_async(connection)).await;
    reply.map_err(|error| store_error(&error))
}

/// A name that no other program can guess. None without random numbers.
fn random_id() -> Option<String> {
    let mut bytes = [0; ID];
    getrandom::fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_program_did_not_write_is_not_a_question() {
        let id = "0123456789abcdef0123456789abcdef";
        let item = format!("1794770000000 {id} {{\"a\": 1}}");
        let read = ReadQuestion::parse(item.as_bytes()).unwrap();
        assert_eq!((read.asked_at, read.id), (1_794_770_000_000, id));
        assert_eq!(read.bytes, b"{\"a\": 1}");
        for item in [
            "",
            " ",
            "  ",
            "1794770000000",
            &format!("1794770000000 {id}"),
            &format!("now {id} x"),
            &format!("-1 {id} x"),
            "1794770000000 ../../etc x",
            &format!("1794770000000 {id}0 x"),
        ] {
            assert_eq!(ReadQuestion::parse(item.as_bytes()), None, "{item}");
        }
        assert_eq!(ReadQuestion::parse(b"\xff \xff \xff"), None);
        let long = format!("1 {id} {}", "x".repeat(MOST_QUESTION + 1));
        assert_eq!(ReadQuestion::parse(long.as_bytes()), None);
    }

    #[test]
    fn no_two_questions_have_one_id() {
        let (one, other) = (random_id().unwrap(), random_id().unwrap());
        assert_eq!(one.len(), 2 * ID);
        assert_ne!(one, other);
    }
}
