//! How often Redis evicted each counter of the suite, by its own announcements.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};
use redis::Connection;
use tidegate_testkit::redis::RedisServer;

use crate::rules::USER;

const CHANNEL: &str = "__keyevent@0__:evicted";
/// A message on the channel that ends the count. No key is named like that.
const END: &str = "end of the count";

/// A count that goes on until it is asked for.
#[derive(Debug)]
pub(crate) struct Evictions {
    thread: JoinHandle<anyhow::Result<BTreeMap<String, u32>>>,
    control: ControlConnection,
}

/// A connection to say that it is enough.
struct ControlConnection(Connection);

impl std::fmt::Debug for ControlConnection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ControlConnection")
    }
}

impl Evictions {
    /// Counts from when it returns. The server needs `notify-keyspace-events Ee`.
    pub(crate) fn watch(redis: &RedisServer) -> anyhow::Result<Self> {
        let control = ControlConnection(redis.client().get_connection()?);
        let mut connection = redis.client().get_connection()?;
        let (subscribed, is_subscribed) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut events = connection.as_pubsub();
            events.subscribe(CHANNEL)?;
            let _ = subscribed.send(());
            let mut counts = BTreeMap::new();
            let prefix = format!("tg:{{{USER}}}:");
            loop {
                let key: String = events.get_message()?.get_payload()?;
                if key == END {
                    return Ok(counts);
                }
                if key.starts_with(&prefix) {
                    *counts.entry(key).or_default() += 1;
                }
            }
        });
        is_subscribed.recv().context("a subscription")?;
        Ok(Self { thread, control })
    }

    /// Ends the count: how often the counter was evicted that was evicted most.
    pub(crate) fn most_of_a_counter(mut self) -> anyhow::Result<u32> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(CHANNEL).arg(END);
        command.query::<()>(&mut self.control.0)?;
        let counts = self.thread.join();
        let counts = counts.map_err(|_| anyhow!("the count of evictions ended early"))??;
        Ok(counts.into_values().max().unwrap_or(0))
    }
}
