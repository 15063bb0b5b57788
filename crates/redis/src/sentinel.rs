//! Sentinels: who is the master now, and who hears first when that changes.
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
use crate::url::Node;

/// How long the other sentinels have to answer once one has.
const OTHERS: Duration = Duration::from_millis(100);
/// How often the sentinels are asked in case that a message of theirs was lost.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The sentinels of one master.
pub(crate) struct Sentinels {
    nodes: Vec<Node>,
    name: String,
    dialer: Dialer,
    connections: Mutex<HashMap<Node, MultiplexedConnection>>,
}

/// Whom a sentinel takes for the master, and since which failover.
struct Told {
    epoch: u64,
    master: Node,
}

impl Sentinels {
    pub(crate) fn new(nodes: Vec<Node>, name: String, dialer: Dialer) -> Self {
        Self {
            nodes,
            name,
            dialer,
            connections: Mutex::new(HashMap::new()),
        }
    }

    /// What the sentinels call the master.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The master, as the sentinel knows it that has seen the latest failover.
    pub(crate) async fn master(&self) -> Result<Node, String> {
        let mut asked: FuturesUnordered<_> = self.nodes.iter().map(|node| self.ask(node)).collect();
        let mut latest: Option<Told> = None;
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
                Some(Ok(told)) => {
                    end.get_or_insert_with(|| now() + OTHERS);
                    if latest.as_ref().is_none_or(|best| told.epoch > best.epoch) {
                        latest = Some(told);
                    }
                }
                Some(Err(problem)) => problems.push(problem),
            }
        }
        latest
            .map(|told| told.master)
            .ok_or_else(|| format!("no sentinel knows the master: {}", problems.join("; ")))
    }

    async fn ask(&self, node: &Node) -> Result<Told, String> {
        let known = self.connections.lock().get(node).cloned();
        if let Some(connection) = known
            && let Ok(told) = self.ask_on(connection).await
        {
            return Ok(told);
        }
        // Perhaps only the connection was old.
        self.connections.lock().remove(node);
        let dialing = self.dialer.dial(node, Role::Sentinel).await;
        let connection =
            dialing.map_err(|error| format!("{node}: {}", explain(&error, Role::Sentinel)))?;
        let told = self.ask_on(connection.clone()).await;
        let told = told.map_err(|problem| format!("{node}: {problem}"))?;
        self.connections.lock().insert(node.clone(), connection);
        Ok(told)
    }

    async fn ask_on(&self, mut connection: MultiplexedConnection) -> Result<Told, String> {
        let mut command = redis::cmd("SENTINEL");
        command.arg("MASTER").arg(&self.name);
        let asking = command.query_async(&mut connection);
        let fields: HashMap<String, String> = within(self.dialer.timeout(), asking)
            .await
            .map_err(|error| explain(&error, Role::Sentinel))?;
        let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
        let (host, port) = (field("ip"), field("port").parse().unwrap_or(0));
        if host.is_empty() || port == 0 {
            return Err("its answer names no address".to_owned());
        }
        Ok(Told {
            epoch: field("config-epoch").parse().unwrap_or(0),
            master: Node::Tcp {
                host: host.to_owned(),
                port,
            },
        })
    }

    /// Listens to one sentinel and says so when there is a new master.
    async fn listen(&self, node: &Node, link: &Weak<Link>) -> Option<()> {
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

/// Keeps the link with the master that the sentinels name, until the link is gone.
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
