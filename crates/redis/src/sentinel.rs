//! Sentinels: which server is the master, and a notice when that changes. `follow_master.rs` acts on it.
//! Why it is ours: `docs/decisions/005-redis-link.md`.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;

use crate::dial::{Dialer, Role, explain, within};
use crate::monotonic::now;
use crate::url::RedisNode;

/// How long the other sentinels have to answer once one has.
const OTHERS: Duration = Duration::from_millis(100);

/// The sentinels of one master.
pub(crate) struct Sentinels {
    nodes: Vec<RedisNode>,
    /// The name of the master at the sentinels.
    pub(crate) name: String,
    dialer: Dialer,
    connections: Mutex<HashMap<RedisNode, MultiplexedConnection>>,
}

/// The master as a sentinel knows it, and since which failover.
struct MasterReport {
    epoch: u64,
    master: RedisNode,
}

impl Sentinels {
    pub(crate) fn new(nodes: Vec<RedisNode>, name: String, dialer: Dialer) -> Self {
        Self {
            nodes,
            name,
            dialer,
            connections: Mutex::new(HashMap::new()),
        }
    }

    /// The master, as known to the sentinel that has seen the latest failover.
    pub(crate) async fn master(&self) -> Result<RedisNode, String> {
        let mut asked: FuturesUnordered<_> = self.nodes.iter().map(|node| self.ask(node)).collect();
        let mut latest: Option<MasterReport> = None;
        let mut problems = Vec::new();
        let mut end = None;
        loop {
            let next = async {
                match end {
                    None => asked.next().await,
                    Some(end) => tokio::time::timeout_at(end, asked.next())
                        .await
                        .unwrap_or(None),
                }
            };
            match next.await {
                None => break,
                Some(Ok(report)) => {
                    end.get_or_insert_with(|| now() + OTHERS);
                    if latest.as_ref().is_none_or(|best| report.epoch > best.epoch) {
                        latest = Some(report);
                    }
                }
                Some(Err(problem)) => problems.push(problem),
            }
        }
        latest
            .map(|report| report.master)
            .ok_or_else(|| format!("no sentinel knows the master: {}", problems.join("; ")))
    }

    async fn ask(&self, node: &RedisNode) -> Result<MasterReport, String> {
        let known = self.connections.lock().get(node).cloned();
        if let Some(connection) = known
            && let Ok(report) = self.ask_on(connection).await
        {
            return Ok(report);
        }
        // The connection may have been stale.
        self.connections.lock().remove(node);
        let dialing = self.dialer.dial(node, Role::Sentinel).await;
        let connection =
            dialing.map_err(|error| format!("{node}: {}", explain(&error, Role::Sentinel)))?;
        let report = self.ask_on(connection.clone()).await;
        let report = report.map_err(|problem| format!("{node}: {problem}"))?;
        self.connections.lock().insert(node.clone(), connection);
        Ok(report)
    }

    async fn ask_on(&self, mut connection: MultiplexedConnection) -> Result<MasterReport, String> {
        let mut command = redis::cmd("SENTINEL");
        command.arg("MASTER").arg(&self.name);
        let asking = command.query_async(&mut connection);
        let fields: HashMap<String, String> = within(self.dialer.timeout(), asking)
            .await
            .map_err(|error| explain(&error, Role::Sentinel))?;
        let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
        let (host, port) = (field("ip"), field("port").parse().unwrap_or(0));
        if host.is_empty() || port == 0 {
            return Err("its reply has no address".to_owned());
        }
        Ok(MasterReport {
            epoch: field("config-epoch").parse().unwrap_or(0),
            master: RedisNode::Tcp {
                host: host.to_owned(),
                port,
            },
        })
    }

    /// The servers that are asked.
    pub(crate) fn nodes(&self) -> &[RedisNode] {
        &self.nodes
    }

    /// Listens to one sentinel until the connection ends. Calls `on_switch` when it names a new master, and stops if
    /// that returns `None`. `None` too if the sentinel cannot be reached.
    pub(crate) async fn listen(
        &self,
        node: &RedisNode,
        on_switch: impl Fn(RedisNode) -> Option<()>,
    ) -> Option<()> {
        let mut messages = self.dialer.listen(node, Role::Sentinel).await.ok()?;
        messages.subscribe("+switch-master").await.ok()?;
        let mut messages = messages.into_on_message();
        while let Some(message) = messages.next().await {
            let text: String = message.get_payload().unwrap_or_default();
            if let Some(master) = switched_to(&text, &self.name) {
                on_switch(master)?;
            }
        }
        Some(())
    }
}

/// The new master of a message `NAME OLD-HOST OLD-PORT HOST PORT`, if it is about this name.
fn switched_to(message: &str, name: &str) -> Option<RedisNode> {
    let mut words = message.split_whitespace();
    if words.next() != Some(name) {
        return None;
    }
    let host = words.nth(2)?.to_owned();
    let port = words.next()?.parse().ok()?;
    Some(RedisNode::Tcp { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_failover_names_the_new_master() {
        let to = |message: &str| switched_to(message, "main").map(|node| node.to_string());
        let expected = Some("10.0.0.2:6380".to_owned());
        assert_eq!(to("main 10.0.0.1 6379 10.0.0.2 6380"), expected);
        let expected = Some("[2001:db8::2]:6380".to_owned());
        assert_eq!(to("main 2001:db8::1 6379 2001:db8::2 6380"), expected);
        assert_eq!(to("other 10.0.0.1 6379 10.0.0.2 6380"), None);
        assert_eq!(to("main 10.0.0.1 6379 10.0.0.2 many"), None);
        assert_eq!(to("main"), None);
    }
}
