//! The last good rules, for a start while the management server is away or a file is wrong: what was received or read,
//! with its time.

use std::path::Path;
use std::sync::Arc;

use prost::Message;
use tidegate::{StoreError, Timestamp};
use tidegate_codec::grpc::proto::rate_limit_config::ConfiguredDomain;
use tidegate_redis::RedisStore;

use crate::data_dir::{LockedDir, checksum};

/// The file in the data directory.
const FILE: &str = "xds-last-good";
/// What begins it, before a checksum and the end of the line.
const OPENING: &[u8] = b"tidegate xds-last-good 1 ";

/// What is kept.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LastGood {
    /// The id of the node; of files, see [`node_of_files`].
    #[prost(string, tag = "1")]
    pub(super) node: String,
    /// The version of the management server.
    #[prost(string, tag = "2")]
    pub(super) version: String,
    /// When it was received, in microseconds.
    #[prost(uint64, tag = "3")]
    pub(super) received: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) domains: Vec<ConfiguredDomain>,
    /// Or the files.
    #[prost(message, repeated, tag = "5")]
    pub(super) files: Vec<KeptFile>,
}

/// A file that rules were read from.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeptFile {
    #[prost(string, tag = "1")]
    pub(super) path: String,
    #[prost(string, tag = "2")]
    pub(super) text: String,
}

/// What stands for the id of a node where rules are files.
pub(crate) fn node_of_files(path: &Path) -> String {
    format!("files:{}", path.display())
}

/// Where they are kept: in both, if both are there.
#[derive(Clone)]
pub(crate) struct LastGoodStores {
    pub(crate) data: Option<Arc<LockedDir>>,
    pub(crate) redis: Option<RedisStore>,
}

impl LastGood {
    pub(super) fn received(&self) -> Timestamp {
        Timestamp::from_micros(self.received)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let message = self.encode_to_vec();
        let sum = checksum(&message);
        [OPENING, sum.as_bytes(), b"\n", &message].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(OPENING)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (sum, message) = (&rest[..end], &rest[end + 1..]);
        let is_whole = sum == checksum(message).as_bytes();
        is_whole.then(|| Self::decode(message).ok())?
    }
}

impl LastGoodStores {
    /// The newer one of those that are kept for a node. Waits for the disk and for Redis.
    pub(crate) async fn load(&self, node: &str) -> Option<LastGood> {
        let lost = "the last good rules are lost";
        let in_file = self.data.as_ref();
        let in_file = in_file.and_then(|data| data.load(FILE, lost, LastGood::from_bytes));
        let in_redis = match &self.redis {
            Some(redis) => redis.kept_rules(node).await.unwrap_or_else(|error| {
                tracing::warn!("the last good rules in Redis cannot be read: {error}");
                None
            }),
            None => None,
        };
        let in_redis = in_redis.and_then(|bytes| LastGood::from_bytes(&bytes));
        let found = [in_file, in_redis].into_iter().flatten();
        let own = found.filter(|kept| kept.node == node);
        own.max_by_key(|kept| kept.received)
    }

    /// Keeps these. They are in force even if that fails.
    pub(crate) async fn keep(&self, kept: &LastGood) {
        let bytes = Arc::new(kept.to_bytes());
        if let Some(data) = self.data.clone().filter(|data| data.is_writable()) {
            let bytes = Arc::clone(&bytes);
            let writing = tokio::task::spawn_blocking(move || data.write(FILE, &bytes));
            if let Ok(Err(error)) = writing.await {
                tracing::error!(
                    "the rules are in force but could not be stored for a start without their source: {error}"
                );
            }
        }
        if let Some(redis) = &self.redis
            && let Err(error) = redis.keep_rules(&kept.node, &bytes).await
        {
            let error: StoreError = error;
            tracing::warn!("the rules are in force but could not be kept in Redis: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_or_changed_is_not_used() {
        let kept = LastGood {
            node: "envoy-ratelimit".to_owned(),
            version: "7".to_owned(),
            received: 1_794_770_000_000_000,
            domains: vec![tidegate_testkit_xds::domain("edge", [])],
            files: Vec::new(),
        };
        let bytes = kept.to_bytes();
        assert_eq!(LastGood::from_bytes(&bytes), Some(kept));
        assert_eq!(LastGood::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(LastGood::from_bytes(b""), None);
        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(LastGood::from_bytes(&changed), None);
    }

    #[tokio::test]
    async fn another_node_does_not_use_it() {
        let folder = tempfile::tempdir().unwrap();
        let data = Arc::new(LockedDir::open(folder.path()).unwrap());
        let stores = LastGoodStores {
            data: Some(data),
            redis: None,
        };
        let kept = LastGood {
            node: "one".to_owned(),
            ..LastGood::default()
        };
        stores.keep(&kept).await;
        assert_eq!(stores.load("one").await, Some(kept));
        assert_eq!(stores.load("other").await, None);
    }
}
