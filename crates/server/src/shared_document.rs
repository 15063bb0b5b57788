//! A document that servers share in Redis: followed, changed by compare-and-set, and never lost silently.
//!
//! Redis decides, also when it returns to an earlier version. Only if it has lost the document, this server's stays in
//! force and is written back. The owner of the document, the rule book or the override book, parses the text and keeps
//! the copy for a start without Redis.

use tidegate::StoreError;
use tidegate_redis::{RedisDocument, Written};

/// How often a change is tried again when another server was faster.
pub(crate) const ATTEMPTS: usize = 8;

/// A document that servers share.
pub(crate) struct SharedDocument {
    redis: RedisDocument,
    /// Its name, for messages.
    what: &'static str,
    /// The advice before repeating a change that may have been made.
    look: &'static str,
}

/// The text of a version, and its row in the history.
pub(crate) struct VersionText {
    pub(crate) text: String,
    pub(crate) row: String,
}

/// How Redis and this server became level.
pub(crate) enum Level<T> {
    /// Redis has this version.
    Version(u64, T),
    /// Redis had none, and this server's has been written to it as this version.
    WrittenBack(u64),
    /// Neither has any.
    Empty,
}

/// Why the document in Redis was not followed. The current one stays in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// Redis is unreachable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document in Redis is invalid.
    #[error(
        "version {version} of {what} in Redis cannot be used by this program{}",
        because(parts)
    )]
    Unusable {
        /// The name of the document.
        what: &'static str,
        /// Which version.
        version: u64,
        /// The invalid parts, as far as they are known.
        parts: Vec<String>,
    },
    /// Redis has no rules, and the stored copy cannot be used.
    #[error("Redis has no rules, and those stored here cannot be used: {0}")]
    Lost(String),
}

/// Why a change was not made in Redis, or that this is unknown.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SharedChangeError(String);

/// Names the invalid parts of a document, for the end of a message.
pub(crate) fn because(parts: &[String]) -> String {
    if parts.is_empty() {
        return String::new();
    }
    format!(" because of {}", parts.join(", "))
}

impl SharedDocument {
    pub(crate) fn new(redis: RedisDocument, what: &'static str, look: &'static str) -> Self {
        Self { redis, what, look }
    }

    pub(crate) fn redis(&self) -> &RedisDocument {
        &self.redis
    }

    /// Whether Redis answers and has this version.
    pub(crate) async fn has_version(&self, version: u64) -> bool {
        self.redis.version().await.ok() == Some(version)
    }

    /// Reads the version in Redis, for the caller to put in force. `read` names the invalid parts of a text. A Redis
    /// without any version gets this server's `own`, if there is one.
    pub(crate) async fn level<T>(
        &self,
        read: impl Fn(&str) -> Result<T, Vec<String>>,
        own: impl Fn() -> Result<Option<VersionText>, FollowError>,
    ) -> Result<Level<T>, FollowError> {
        for _ in 0..2 {
            let (version, text) = self.redis.current().await?;
            if version > 0 {
                let read = text.map_or_else(|| Err(Vec::new()), |text| read(&text));
                let unusable = |parts| FollowError::Unusable {
                    what: self.what,
                    version,
                    parts,
                };
                return Ok(Level::Version(version, read.map_err(unusable)?));
            }
            let Some(own) = own()? else {
                return Ok(Level::Empty);
            };
            let written = self.redis.write(0, &own.text, &own.row).await?;
            if let Written::Version(version) = written {
                return Ok(Level::WrittenBack(version));
            }
            // Another server wrote its own first, perhaps a different one.
        }
        let contradiction = "it has no version, and does not accept one";
        Err(StoreError::BadReply(contradiction.into()).into())
    }

    /// Writes the version after `after`. Returns its number; `None` if another server was faster.
    pub(crate) async fn write(
        &self,
        after: u64,
        new: &VersionText,
    ) -> Result<Option<u64>, SharedChangeError> {
        match self.redis.write(after, &new.text, &new.row).await {
            Ok(Written::Version(version)) => Ok(Some(version)),
            Ok(Written::Stale(_)) => Ok(None),
            Err(StoreError::Unreachable(source)) => Err(self.unreachable(&source.to_string())),
            Err(error) => Err(SharedChangeError(format!(
                "{} are in Redis, which received the change and did not answer: {error}; {} before you repeat it",
                self.what, self.look
            ))),
        }
    }

    /// Redis is unreachable: nothing was changed.
    pub(crate) fn unreachable(&self, problem: &str) -> SharedChangeError {
        SharedChangeError(format!(
            "{} are in Redis, which does not answer, so nothing was changed: {problem}; repeat it when `/readyz` says `ready`",
            self.what
        ))
    }
}
