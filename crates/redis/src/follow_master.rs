//! Keeps a link connected to the master that the sentinels name.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::backoff::Backoff;
use crate::link::Link;
use crate::sentinel::Sentinels;
use crate::url::RedisNode;

/// How often the sentinels are asked, in case a message of theirs was lost.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Keeps the link connected to the master until the link is dropped.
pub(crate) async fn follow_master(sentinels: Arc<Sentinels>, link: Weak<Link>) {
    let announced = Arc::new(AnnouncedMaster::default());
    let mut tasks = tokio::task::JoinSet::new();
    for node in sentinels.nodes().to_vec() {
        let (sentinels, link) = (Arc::clone(&sentinels), link.clone());
        let announced = Arc::clone(&announced);
        tasks.spawn(async move {
            let mut backoff = Backoff::new();
            while link.strong_count() > 0 {
                let renew = |master| {
                    let link = link.upgrade()?;
                    announced.log(&master);
                    link.renew();
                    Some(())
                };
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
            announced.log(&master);
            link.renew();
        }
    }
}

/// The master that was last logged: every sentinel announces a new one.
#[derive(Default)]
struct AnnouncedMaster(Mutex<Option<RedisNode>>);

impl AnnouncedMaster {
    fn log(&self, master: &RedisNode) {
        if self.is_news(master) {
            tracing::info!(%master, "the sentinels have a new master");
        }
    }

    fn is_news(&self, master: &RedisNode) -> bool {
        self.0.lock().replace(master.clone()).as_ref() != Some(master)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_that_several_sentinels_announce_is_news_once() {
        let master = |port| RedisNode::Tcp {
            host: "10.0.0.1".to_owned(),
            port,
        };
        let announced = AnnouncedMaster::default();
        let news = [1, 1, 1, 2, 2, 1].map(|port| announced.is_news(&master(port)));
        assert_eq!(news, [true, false, false, true, false, true]);
    }
}
