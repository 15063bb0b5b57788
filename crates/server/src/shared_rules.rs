//! Follows the rules and the temporary overrides that servers share in Redis, and logs the result.
//!
//! A hint announces each change. Hints can be lost, so the version is polled as well, often enough for a change
//! to be everywhere within a second.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use crate::admin::Admin;
use crate::rulebook::{FollowError, Followed, NO_RULES};

/// How often the version of a document in Redis is polled.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Follows what is in Redis until dropped: the temporary overrides, and the rules if they are shared. Returns
/// immediately without Redis.
pub(crate) async fn keep_following(admin: Arc<Admin>) {
    let Some(store) = admin.store.redis().cloned() else {
        return;
    };
    let (rules_hint, overrides_hint) = (Notify::new(), Notify::new());
    let hearing = store.follow_rules(|| {
        rules_hint.notify_one();
        overrides_hint.notify_one();
    });
    let rules = async {
        if admin.book.is_shared() {
            let (book, admin) = (&admin.book, &admin);
            keep_asking(&rules_hint, || book.is_level(), || follow(admin)).await;
        }
    };
    let overrides = async {
        let (book, gate) = (&admin.overrides, &admin.gate);
        keep_asking(&overrides_hint, || book.is_level(), || book.follow(gate)).await;
    };
    tokio::join!(hearing, rules, overrides);
}

/// Follows a document after each hint, and when its version in Redis is another than the one in force. Never ends.
async fn keep_asking<L, F>(hint: &Notify, is_level: impl Fn() -> L, follow: impl Fn() -> F)
where
    L: Future<Output = bool>,
    F: Future<Output = bool>,
{
    let mut times = tokio::time::interval(ASK_EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_sure = false;
    loop {
        let is_hint = tokio::select! {
            () = hint.notified() => true,
            _ = times.tick() => false,
        };
        // After a hint the document is read whatever its version: after a failover, two can have the same one.
        if is_hint || !is_sure || !is_level().await {
            is_sure = follow().await;
        }
    }
}

/// Asks Redis once. Returns whether the rules in force are known to be those in Redis.
pub(crate) async fn follow(admin: &Admin) -> bool {
    let earlier = admin.book.problem();
    match admin.book.follow(&admin.gate).await {
        Ok(followed) => {
            if earlier.is_some() {
                tracing::info!("the rules in Redis can be read again");
            }
            tell(admin, &followed);
            true
        }
        Err(error) => {
            let problem = admin.book.problem().unwrap_or_default();
            // Logged once, not twice a second.
            match error {
                FollowError::Store(_) if earlier.is_none() => {
                    tracing::warn!("the rules stay as they were: {problem}");
                }
                FollowError::Store(_) => {}
                _ if earlier.as_ref() == Some(&problem) => {}
                _ => tracing::error!("the rules stay as they were: {problem}"),
            }
            false
        }
    }
}

fn tell(admin: &Admin, followed: &Followed) {
    match followed {
        Followed::Same => {}
        Followed::None => tracing::warn!("{NO_RULES}"),
        Followed::Changed {
            version,
            before,
            changes,
            problems,
        } => {
            let changes = changes.join(", ");
            if admin.gate.rules().is_empty() {
                tracing::warn!(
                    version,
                    before,
                    changes,
                    "the rules in Redis are an empty set and are in force: {NO_RULES}"
                );
            } else if version < before {
                tracing::warn!(
                    version,
                    before,
                    changes,
                    "Redis returned to an earlier version of the rules, and so did this server"
                );
            } else {
                tracing::info!(version, changes, "the rules in Redis are in force");
            }
            admin.book.log_warnings(problems);
        }
        Followed::WrittenBack { version, before: 0 } => tracing::info!(
            version,
            "Redis had no rules; those of the data directory are in Redis now, for all servers"
        ),
        Followed::WrittenBack { version, before } => tracing::error!(
            version,
            before,
            "Redis had lost its rules; the rules in force here were written back"
        ),
    }
}
