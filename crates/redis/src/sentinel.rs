//! Sentinels: which server is the master, and a notice when that changes.
//! Why it is ours: `docs/decisions/005-redis-link.md`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;

use crate::backoff::Backoff;
use crate::dial::{Dialer, Role, explain, within};
use crate::link::Link;
use crate::monotonic::now;
use crate::url::RedisNode;

/// How long the other sentinels have to answer once one has.
const OTHERS: Duration = Duration::from_millis(100);
/// How often the sentinels are asked, in case a message of theirs was lost.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The sentinels of one master.
pub(crate) struct Sentinels {
    nodes: Vec<RedisNode>,
    name: String,
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

    /// The name of the master at the sentinels.
    pub(crate) fn name(&self) -> &str {
        &self.name
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

    /// Listens to one sentinel and renews the link when there is a new master.
    async fn listen(&self, node: &RedisNode, link: &Weak<Link>) -> Option<()> {
        let mut messages = self.dialer.listen(node, Role::Sentinel).await.ok()?;
        messages.subscribe("+switch-master").await.ok()?;
        let mut messages = messages.into_on_message();
        while let Some(message) = messages.next().await {
            let text: String = message.get_payload().unwrap_or_default();
            if text.split_whitespace().next() == Some(&self.name) {
                tracing::info!(master = self.name, "the sentinels have a new master");
                link.upgrade()?.renew();
            }
        }
        Some(())
    }
}

/// Keeps the link connected to the master that the sentinels name, until the link is dropped.
pub(crate) async fn follow(sentinels: Arc<Sentinels>, link: Weak<Link>) {
    let mut tasks = tokio::task::JoinSet::new();
    for node in sentinels.nodes.clone() {
        let (sentinels, link) = (Arc::clone(&sentinels), link.clone());
        tasks.spawn(async move {
            let mut backoff = Backoff::new();
            while link.strong_count() > 0 {
                if sentinels.listen(&node, &link).await.is_some() {
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
