//! The activity of the other instances that share a Redis: published by each, read when it is asked for.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_activity::ActivityPart;
use tidegate_redis::{MOST_ACTIVITY, RedisStore};

use super::{ServerActivity, now};

/// How often an instance publishes.
const PUBLISH_EVERY: Duration = Duration::from_secs(5);
/// The rules and keys that are published.
const RULES: usize = 50;
const KEYS: usize = 20;

/// How long parts that were read are used again, in seconds.
const FRESH: u64 = 2;
/// After so long they are forgotten if they cannot be read again.
const LASTS: u64 = 30;

/// The part of another instance.
#[derive(Debug)]
pub(crate) struct OtherInstance {
    pub(super) id: String,
    /// How old it was when it was read.
    age: Duration,
    read_at: u64,
    pub(super) part: ActivityPart,
}

impl OtherInstance {
    /// How old it is, in seconds with one decimal.
    pub(super) fn age(&self, now: u64) -> f64 {
        let age = self.age + Duration::from_secs(now.saturating_sub(self.read_at));
        (age.as_secs_f64() * 10.0).round() / 10.0
    }
}

/// The parts that were last read, and when.
#[derive(Default)]
pub(crate) struct KeptParts(Mutex<(u64, Arc<[OtherInstance]>)>);

impl ServerActivity {
    /// The parts of the other instances; the last known ones if Redis does not answer.
    pub(crate) async fn others(&self, redis: Option<&RedisStore>) -> Arc<[OtherInstance]> {
        let Some(redis) = redis else {
            return Arc::default();
        };
        let read_at = now();
        let (kept_at, kept) = self.parts.0.lock().clone();
        if kept_at > 0 && read_at.saturating_sub(kept_at) < FRESH {
            return kept;
        }
        let Ok(published) = redis.read_activity(&self.instance).await else {
            let is_old = read_at.saturating_sub(kept_at) > LASTS;
            return if is_old { Arc::default() } else { kept };
        };
        let parts = published.into_iter().filter_map(|published| {
            // Anything may be in Redis.
            let part = ActivityPart::from_bytes(&published.bytes)?;
            Some(OtherInstance {
                id: published.instance,
                age: published.age,
                read_at,
                part,
            })
        });
        let parts: Arc<[OtherInstance]> = parts.collect();
        *self.parts.0.lock() = (read_at, Arc::clone(&parts));
        parts
    }

    /// Publishes the activity of this instance, for as long as the server runs, and follows the seed that the instances
    /// share, so that distinct keys can be counted together.
    pub(crate) async fn keep_publishing(self: Arc<Self>, redis: RedisStore) {
        let mut earlier = self.earlier.as_deref();
        loop {
            // What a killed process published would count twice.
            if let Some(instance) = earlier
                && redis.withdraw_activity(instance).await.is_ok()
            {
                earlier = None;
            }
            let activity = Arc::clone(&self);
            let writing = tokio::task::spawn_blocking(move || {
                activity
                    .live
                    .part(now(), RULES, KEYS, &*activity)
                    .to_bytes(MOST_ACTIVITY)
            });
            if let Ok(bytes) = writing.await {
                let seed = self.live.seed();
                match redis.publish_activity(&self.instance, &bytes, seed).await {
                    Ok(shared) => self.follow_seed(shared),
                    Err(error) => tracing::debug!(%error, "activity is not published"),
                }
            }
            tokio::time::sleep(PUBLISH_EVERY).await;
        }
    }

    fn follow_seed(&self, shared: u128) {
        if shared == self.live.seed() {
            return;
        }
        if self.live.adopt_seed(shared) {
            tracing::debug!("keys are counted with the seed of the other servers from now on");
        } else {
            tracing::debug!(
                "the seed in Redis was replaced too often; distinct keys are counted apart from the other servers"
            );
        }
    }
}
