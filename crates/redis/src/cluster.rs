//! A cluster: which server answers for which slot, kept up to date while it changes.
//! Why it is ours: `docs/decisions/005-redis-link.md`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::call::{CallError, Reply, Work};
use crate::dial::{Dialer, Role, explain, within};

use crate::link::{Link, LinkSettings, NOT_YET, Target};
use crate::monotonic::now;
use crate::stats::Stats;
use crate::url::Node;
use crate::wire::Step;

/// How many slots every cluster has.
const SLOTS: usize = 16_384;
/// How often the map is looked at again when nothing tells that it is old.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long after a look the next one may be, when something tells that it is old.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The masters of a cluster. Ends its task when it is dropped.
pub(crate) struct Cluster {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

struct Inner {
    dialer: Dialer,
    deadline: Duration,
    stats: Arc<Stats>,
    probe: Step,
    seeds: Vec<Node>,
    map: ArcSwap<Map>,
    links: Mutex<HashMap<Node, Arc<Link>>>,
    /// Somebody has found the map to be old.
    look: Notify,
}

/// Who answers for each slot.
#[derive(Clone)]
struct Map {
    owners: Vec<Option<Arc<Link>>>,
    masters: Vec<Node>,
    problem: String,
}

impl Cluster {
    /// Begins to look for the masters. Must be called within a runtime.
    pub(crate) fn open(
        seeds: Vec<Node>,
        deadline: Duration,
        (dialer, stats, probe): (Dialer, Arc<Stats>, Step),
    ) -> Self {
        let map = Map {
            owners: vec![None; SLOTS],
            masters: Vec::new(),
            problem: NOT_YET.to_owned(),
        };
        let inner = Arc::new(Inner {
            dialer,
            deadline,
            stats,
            probe,
            seeds,
            map: ArcSwap::from_pointee(map),
            links: Mutex::new(HashMap::new()),
            look: Notify::new(),
        });
        let task = tokio::spawn(watch(Arc::clone(&inner)));
        Self { inner, task }
    }

    /// Asks the server that answers for `slot`, and whom it names instead, until the deadline.
    pub(crate) async fn call(
        &self,
        slot: u16,
        work: Work,
        deadline: Instant,
    ) -> Result<Reply, CallError> {
        let inner = &self.inner;
        let mut asked = inner.owner(slot);
        let mut is_asking = false;
        let mut is_redirected = false;
        loop {
            let Some(link) = asked else {
                inner.look.notify_one();
                return Err(CallError::Down(inner.map.load().problem.clone()));
            };
            match link.call(work.clone(), is_asking, deadline).await {
                Err(CallError::Moved(node)) => {
                    is_redirected = true;
                    inner.stats.add(&inner.stats.redirects);
                    inner.look.notify_one();
                    asked = Some(inner.moved(slot, at_host_of(node, &link)));
                    is_asking = false;
                }
                Err(CallError::Ask(node)) => {
                    is_redirected = true;
                    inner.stats.add(&inner.stats.redirects);
                    asked = Some(inner.link(at_host_of(node, &link)));
                    is_asking = true;
                }
                // A link that was made for this very redirect needs a moment to connect.
                Err(CallError::Down(problem)) if is_redirected => {
                    return Err(CallError::NotNow(problem));
                }
                Err(error @ (CallError::Down(_) | CallError::NotNow(_) | CallError::Lost(_))) => {
                    inner.look.notify_one();
                    return Err(error);
                }
                answer => return answer,
            }
            // Somebody who is redirected for ever is still heard when the deadline has come.
            if now() >= deadline {
                return Err(CallError::NotNow("redirected without end".to_owned()));
            }
        }
    }

    /// Whether every slot has a server that answers.
    pub(crate) fn problem(&self) -> Option<String> {
        let map = self.inner.map.load();
        if map.masters.is_empty() {
            return Some(map.problem.clone());
        }
        let mut down = map.owners.iter().flatten().filter(|link| !link.is_up());
        match down.next() {
            Some(link) => Some(format!("one of its masters is away: {}", link.problem())),
            None if map.owners.iter().any(Option::is_none) => {
                Some("some of its slots have no master".to_owned())
            }
            None => None,
        }
    }

    /// A slot of every master that is known, and whether all slots have one.
    pub(crate) fn slots_by_master(&self) -> (Vec<u16>, bool) {
        let map = self.inner.map.load();
        let mut masters: Vec<&Arc<Link>> = Vec::new();
        let mut slots = Vec::new();
        let mut is_covered = true;
        for (slot, owner) in (0_u16..).zip(&map.owners) {
            let Some(owner) = owner else {
                is_covered = false;
                continue;
            };
            // Neighbouring slots mostly have the same master.
            if !masters.iter().rev().any(|known| Arc::ptr_eq(known, owner)) {
                masters.push(owner);
                slots.push(slot);
            }
        }
        (slots, is_covered)
    }

    /// Who answers for `slot`.
    pub(crate) fn node_of(&self, slot: u16) -> Option<Node> {
        self.inner.owner(slot)?.connected_to()
    }

    /// Whether any slot can be asked.
    pub(crate) fn is_up(&self) -> bool {
        self.inner.links.lock().values().any(|link| link.is_up())
    }

    /// How many jobs wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        let links = self.inner.links.lock();
        links.values().map(|link| link.waiting()).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inner {
    fn owner(&self, slot: u16) -> Option<Arc<Link>> {
        self.map.load().owners.get(usize::from(slot))?.clone()
    }

    /// The link to `node`, made if there is none.
    fn link(&self, node: Node) -> Arc<Link> {
        let mut links = self.links.lock();
        let link = links.entry(node).or_insert_with_key(|node| {
            Arc::new(Link::open(LinkSettings {
                target: Target::Node(node.clone()),
                dialer: self.dialer.clone(),
                deadline: self.deadline,
                is_cluster: true,
                stats: Arc::clone(&self.stats),
                probe: self.probe.clone(),
            }))
        });
        Arc::clone(link)
    }

    /// Writes down who answers for a slot now.
    fn moved(&self, slot: u16, node: Node) -> Arc<Link> {
        let link = self.link(node);
        if self
            .owner(slot)
            .is_some_and(|owner| Arc::ptr_eq(&owner, &link))
        {
            return link;
        }
        self.map.rcu(|map| {
            let mut map = Map::clone(map);
            if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
                *owner = Some(Arc::clone(&link));
            }
            map
        });
        link
    }

    /// Writes down who answers for which slot, and closes links that nobody needs any more.
    fn put(&self, ranges: Vec<(u16, u16, Node)>) {
        let mut owners = vec![None; SLOTS];
        let mut masters: Vec<Node> = Vec::new();
        for (first, last, node) in ranges {
            let link = self.link(node.clone());
            let (first, last) = (usize::from(first), usize::from(last).min(SLOTS - 1));
            if first <= last {
                owners[first..=last].fill(Some(link));
            }
            if !masters.contains(&node) {
                masters.push(node);
            }
        }
        // Who has told of this may be behind the times: links are kept while somebody uses them.
        self.links
            .lock()
            .retain(|node, link| masters.contains(node) || link.is_in_use());
        self.map.store(Arc::new(Map {
            owners,
            masters,
            problem: "the cluster has no master for this slot".to_owned(),
        }));
    }

    /// Whether a master is known that cannot be reached, or a slot without one.
    fn is_whole(&self) -> bool {
        let map = self.map.load();
        let is_up = |owner: &Option<Arc<Link>>| owner.as_ref().is_some_and(|link| link.is_up());
        map.owners.iter().all(is_up)
    }
}

/// Whom a redirect names: a server that does not know its own host is where the one is that named it.
fn at_host_of(node: Node, asked: &Link) -> Node {
    match (node, asked.connected_to()) {
        (Node::Tcp { host, port }, Some(Node::Tcp { host: known, .. })) if host.is_empty() => {
            Node::Tcp { host: known, port }
        }
        (node, _) => node,
    }
}

/// Looks at the map again and again: at once when somebody finds it to be old, often while something is
/// wrong, and every second otherwise.
async fn watch(inner: Arc<Inner>) {
    let mut connections: HashMap<Node, MultiplexedConnection> = HashMap::new();
    let mut backoff = Backoff::new();
    loop {
        let mut nodes = inner.map.load().masters.clone();
        // Whoever was reached last is asked first.
        nodes.sort_by_key(|node| !connections.contains_key(node));
        nodes.extend(inner.seeds.iter().cloned());
        let mut problems = Vec::new();
        let mut found = None;
        for node in nodes {
            match look(&inner.dialer, &node, &mut connections).await {
                Ok(ranges) => {
                    found = Some(ranges);
                    break;
                }
                Err(problem) => problems.push(format!("{node}: {problem}")),
            }
        }
        if let Some(ranges) = found {
            inner.put(ranges);
            backoff = Backoff::new();
        } else {
            let problem = format!("no server of the cluster answers: {}", problems.join("; "));
            if inner.map.load().masters.is_empty() {
                let map = Map {
                    owners: vec![None; SLOTS],
                    masters: Vec::new(),
                    problem,
                };
                inner.map.store(Arc::new(map));
            }
            tokio::time::sleep(backoff.next()).await;
            continue;
        }
        let pause = if inner.is_whole() {
            LOOK_EVERY
        } else {
            LOOK_AGAIN * 4
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = inner.look.notified() => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

/// What one server takes for the map.
async fn look(
    dialer: &Dialer,
    node: &Node,
    connections: &mut HashMap<Node, MultiplexedConnection>,
) -> Result<Vec<(u16, u16, Node)>, String> {
    let mut connection = if let Some(connection) = connections.get(node) {
        connection.clone()
    } else {
        let made = dialer.dial(node, Role::Server).await;
        made.map_err(|error| explain(&error, Role::Server))?
    };
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let asked = within(dialer.timeout() / 2, command.query_async(&mut connection)).await;
    match asked {
        Ok(value) => {
            connections.insert(node.clone(), connection);
            let ranges = ranges(&value, node);
            if ranges.is_empty() {
                return Err("it knows no slots".to_owned());
            }
            Ok(ranges)
        }
        Err(error) => {
            connections.remove(node);
            Err(explain(&error, Role::Server))
        }
    }
}

/// Reads `CLUSTER SLOTS`: first and last slot, then the master's host and port. What cannot be read is
/// left out.
fn ranges(value: &Value, asked: &Node) -> Vec<(u16, u16, Node)> {
    let Value::Array(rows) = value else {
        return Vec::new();
    };
    let number = |value: Option<&Value>| match value {
        Some(Value::Int(number)) => u16::try_from(*number).ok(),
        _ => None,
    };
    let text = |value: Option<&Value>| match value {
        Some(Value::BulkString(bytes)) => String::from_utf8(bytes.clone()).ok(),
        Some(Value::SimpleString(text)) => Some(text.clone()),
        _ => None,
    };
    let read = |row: &Value| {
        let Value::Array(row) = row else {
            return None;
        };
        let Some(Value::Array(master)) = row.get(2) else {
            return None;
        };
        let host = text(master.first()).filter(|host| !host.is_empty() && host != "?");
        // A server that does not know its own address is reached where it was asked.
        let host = match (host, asked) {
            (Some(host), _) => host,
            (None, Node::Tcp { host, .. }) => host.clone(),
            (None, Node::Unix(_)) => return None,
        };
        let port = number(master.get(1))?;
        Some((
            number(row.first())?,
            number(row.get(1))?,
            Node::Tcp { host, port },
        ))
    };
    rows.iter().filter_map(read).collect()
}
