//! The last good rules of a management server, kept in Redis for a start without it. Opaque bytes, one value for each node
//! id: all instances with an id get the same rules.
//!
//! Uses a connection of its own: a decision never waits behind a large value.

use std::time::Duration;

use redis::FromRedisValue;
use tidegate_core::StoreError;

use crate::dial::{store_error, within};
use crate::store::RedisStore;

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(5);

impl RedisStore {
    /// The rules that were kept for a node; `None` if none were.
    pub async fn kept_rules(&self, node: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(self.kept_key()).arg(node);
        self.ask_kept(command).await
    }

    /// Keeps the rules of a node, in place of earlier ones.
    pub async fn keep_rules(&self, node: &str, rules: &[u8]) -> Result<(), StoreError> {
        let mut command = redis::cmd("HSET");
        command.arg(self.kept_key()).arg(node).arg(rules);
        self.ask_kept(command).await
    }

    fn kept_key(&self) -> String {
        format!("{}:{{xds}}", self.prefix())
    }

    async fn ask_kept<T: FromRedisValue>(&self, command: redis::Cmd) -> Result<T, StoreError> {
        let mut connection = self.router().dial(&self.kept_key()).await?;
        let asked = within(PATIENCE, command.query_async(&mut connection)).await;
        asked.map_err(|error| store_error(&error))
    }
}
