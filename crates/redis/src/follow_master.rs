//! Keeps a link connected to the master that the sentinels name.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::backoff::Backoff;
use crate::link::Link;
use crate::sentinel::Sentinels;

/// How often the sentinels are asked, in case a message of theirs was lost.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Keeps the link connected to the master until the link is dropped.
pub(crate) async fn follow_master(sentinels: Arc<Sentinels>, link: Weak<Link>) {
    let mut tasks = tokio::task::JoinSet::new();
    for node in sentinels.nodes().to_vec() {
        let (sentinels, link) = (Arc::clone(&sentinels), link.clone());
        tasks.spawn(async move {
            let mut backoff = Backoff::new();
            while link.strong_count() > 0 {
                let renew = || link.upgrade().map(|link| link.renew());
                if sentinels.listen(&node, renew).await.is_some() {
                    backoff = Backoff::new();
                }
                tokio::time::sleep(backoff.next()).await;
            }
        });
    }
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        let Some(connected_to) = link.upgrade().map(|link| link.connected_to()) else {
            return;
        };
        let Some(connected_to) = connected_to else {
            continue;
        };
        if let Ok(master) = sentinels.master().await
            && master != connected_to
            && let Some(link) = link.upgrade()
        {
            tracing::info!(%master, was = %connected_to, "the sentinels have a new master");
            link.renew();
        }
    }
}
