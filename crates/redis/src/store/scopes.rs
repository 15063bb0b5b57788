//! Forgets the states of whole scopes, which only a walk through all keys can find.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError};
use tidegate_core::StoreError;

use super::RedisStore;
use crate::dial::{store_error, within};
use tidegate_redis_wire::keys::{RedisKeys, tag_of};

/// How long a reply may take. No decision waits for these.
const PATIENCE: Duration = Duration::from_secs(2);
/// About how many keys Redis looks at for one reply.
const KEYS_PER_REPLY: usize = 1_000;

impl RedisStore {
    /// Forgets what every key has used in the scopes whose names begin with `beginning`, and returns how many states
    /// that were.
    ///
    /// Walks through all keys of the servers on connections of its own, a thousand at a time: it takes longer the more
    /// keys there are in Redis, and others are decided meanwhile. A state that is made meanwhile may stay. Other
    /// instances may remember denials for up to a second.
    pub async fn forget_scopes(&self, beginning: &str) -> Result<u64, StoreError> {
        let pattern = self.inner.keys.states_of(beginning);
        let (slots, is_covered) = self.inner.router.slots_by_server();
        if !is_covered {
            let problem = self.problem();
            let problem = problem.unwrap_or_else(|| "some slots have no master".to_owned());
            return Err(StoreError::Unreachable(problem.into()));
        }
        let mut forgotten = 0;
        for slot in slots {
            let server = self.inner.router.dial(tag_of(slot)).await?;
            let removed = remove_matching(server, &pattern).await;
            forgotten += removed.map_err(|error| store_error(&error))?;
        }
        self.inner.hints.forget_denials();
        Ok(forgotten)
    }
}

/// Removes the keys of one server that match, and counts those that are states.
async fn remove_matching(
    mut server: MultiplexedConnection,
    pattern: &str,
) -> Result<u64, RedisError> {
    let (mut cursor, mut states) = (0_u64, 0);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern);
        scan.arg("COUNT").arg(KEYS_PER_REPLY);
        let scanning = scan.query_async::<(u64, Vec<String>)>(&mut server);
        let (next, found) = within(PATIENCE, scanning).await?;
        if !found.is_empty() {
            // One by one, because in a cluster they are in different slots.
            let mut removal = Pipeline::with_capacity(found.len());
            for key in &found {
                removal.cmd("UNLINK").arg(key);
            }
            let removing = removal.query_async::<Vec<u64>>(&mut server);
            let removed = within(PATIENCE, removing).await?;
            let of_states = found.iter().zip(removed);
            states += of_states
                .filter(|(key, _)| RedisKeys::is_state(key))
                .map(|(_, removed)| removed)
                .sum::<u64>();
        }
        if next == 0 {
            return Ok(states);
        }
        cursor = next;
    }
}
