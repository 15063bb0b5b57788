//! Keeps a server's rules those of the Redis that it shares, and logs what comes of that.
//!
//! A hint tells of each change at once. Hints can be lost, so the version is asked for as well, often
//! enough for a change to be everywhere within a second.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use crate::rulebook::{FollowError, Followed, NO_RULES};
use crate::server::Server;

/// How often Redis is asked for the version of its rules.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Follows the rules in Redis until it is given up. Ends at once if they are not there.
pub(crate) async fn keep_following(server: Arc<Server>) {
    let Some(store) = server.gate.store().redis().cloned() else {
        return;
    };
    if !server.book.is_shared() {
        return;
    }
    let hint = Notify::new();
    let hearing = store.follow_rules(|| hint.notify_one());
    let asking = async {
        let mut times = tokio::time::interval(ASK_EVERY);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_sure = false;
        loop {
            let is_hint = tokio::select! {
                () = hint.notified() => true,
                _ = times.tick() => false,
            };
            // After a hint the rules are read whatever their version is: after a failover, two can have
            // the same.
            if !is_hint
                && is_sure
                && let Ok(version) = store.rules_version().await
                && version == server.book.version()
            {
                continue;
            }
            is_sure = follow(&server).await;
        }
    };
    tokio::join!(hearing, asking);
}

/// Asks Redis once. Whether it is known now that the rules in force are its own.
pub(crate) async fn follow(server: &Server) -> bool {
    let earlier = server.book.problem();
    match server.book.follow(&server.gate).await {
        Ok(followed) => {
            if earlier.is_some() {
                tracing::info!("the rules in Redis can be read again");
            }
            tell(server, &followed);
            true
        }
        Err(error) => {
            let problem = server.book.problem().unwrap_or_default();
            // Once, and not twice a second.
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

fn tell(server: &Server, followed: &Followed) {
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
            if server.gate.rules().is_empty() {
                tracing::warn!(
                    version,
                    before,
                    changes,
                    "the rules in Redis are an empty set and were taken over: {NO_RULES}"
                );
            } else if version < before {
                tracing::warn!(
                    version,
                    before,
                    changes,
                    "Redis went back to an earlier version of the rules, and so did this server"
                );
            } else {
                tracing::info!(version, changes, "the rules in Redis were taken over");
            }
            server.book.log_warnings(problems);
        }
        Followed::WrittenBack { version, before: 0 } => tracing::info!(
            version,
            "Redis had no rules; those of the data directory are in Redis now, for all servers"
        ),
        Followed::WrittenBack { version, before } => tracing::error!(
            version,
            before,
            "Redis had lost its rules; those that were in force here are in Redis again"
        ),
    }
}
