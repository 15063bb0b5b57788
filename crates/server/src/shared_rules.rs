//! Follows the rules and the temporary overrides that servers share in Redis, and logs the result.
//!
//! A hint announces each change. Hints can be lost, so the version is polled as well, often enough for a change
//! to be everywhere within a second.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior};

use crate::admin::Admin;
use crate::rulebook::{FollowError, Followed, NO_RULES};

/// How often the version of the rules in Redis is polled.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Follows what is in Redis until dropped: the temporary overrides, and the rules if they are shared. Returns
/// immediately without Redis.
pub(crate) async fn keep_following(admin: Arc<Admin>) {
    let Some(store) = admin.gate.store().redis().cloned() else {
        return;
    };
    let (rules_hint, overrides_hint) = (Notify::new(), Notify::new());
    let hearing = store.follow_rules(|| {
        rules_hint.notify_one();
        overrides_hint.notify_one();
    });
    let asking = async {
        if !admin.book.is_shared() {
            return;
        }
        let mut times = asking_times();
        let mut is_sure = false;
        loop {
            let is_hint = is_hint(&rules_hint, &mut times).await;
            // After a hint the rules are read whatever their version: after a failover, two sets can have the
            // same one.
            if !is_hint
                && is_sure
                && let Ok(version) = store.rules_version().await
                && version == admin.book.version()
            {
                continue;
            }
            is_sure = follow(&admin).await;
        }
    };
    let asking_overrides = async {
        let mut times = asking_times();
        let mut is_sure = false;
        loop {
            let is_hint = is_hint(&overrides_hint, &mut times).await;
            let is_cheap = is_sure && !is_hint;
            is_sure = admin.overrides.follow(&admin.gate, is_cheap).await;
        }
    };
    tokio::join!(hearing, asking, asking_overrides);
}

fn asking_times() -> Interval {
    let mut times = tokio::time::interval(ASK_EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    times
}

/// Waits for a hint or for the next time to ask; whether it was a hint.
async fn is_hint(hint: &Notify, times: &mut Interval) -> bool {
    tokio::select! {
        () = hint.notified() => true,
        _ = times.tick() => false,
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
