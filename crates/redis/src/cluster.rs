//! A cluster: which server answers for which slot, kept up to date while it changes.
//! Why it is ours: `docs/decisions/005-redis-link.md`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tidegate_core::{Clock as _, SystemClock, Timestamp};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::call::{CallBody, CallError, CallReply};
use crate::dial::{Dialer, Role, explain, within};

use crate::link::{Link, LinkSettings, LinkTarget, NOT_YET};
use crate::monotonic::now;
use crate::url::RedisNode;

/// How many slots every cluster has.
const SLOTS: usize = 16_384;
/// How often the map is read again when nothing indicates that it is stale.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon the map is read again when something indicates that it is stale.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The masters of a cluster. Ends its task when it is dropped.
pub(crate) struct ClusterLinks {
    inner: Arc<ClusterInner>,
    task: JoinHandle<()>,
}

struct ClusterInner {
    /// The settings of its links.
    settings: LinkSettings,
    seeds: Vec<RedisNode>,
    map: ArcSwap<Map>,
    links: Mutex<HashMap<RedisNode, Arc<Link>>>,
    /// A call has found the map to be stale.
    look: Notify,
    /// Since when it is not whole, as far as that was noticed.
    broken_since: Mutex<Option<Timestamp>>,
}

/// Which server has each slot.
#[derive(Clone)]
struct Map {
    owners: Vec<Option<Arc<Link>>>,
    masters: Vec<RedisNode>,
    problem: String,
}

impl ClusterLinks {
    /// Begins to look for the masters. Must be called within a runtime.
    pub(crate) fn open(seeds: Vec<RedisNode>, settings: LinkSettings) -> Self {
        let inner = Arc::new(ClusterInner {
            settings,
            seeds,
            map: ArcSwap::from_pointee(Map::unknown(NOT_YET.to_owned())),
            links: Mutex::new(HashMap::new()),
            look: Notify::new(),
            broken_since: Mutex::new(Some(SystemClock.now())),
        });
        let task = tokio::spawn(watch(Arc::clone(&inner)));
        Self { inner, task }
    }

    /// Asks the server that has `slot`, and follows its redirects until the deadline.
    pub(crate) async fn call(
        &self,
        slot: u16,
        work: CallBody,
        deadline: Instant,
    ) -> Result<CallReply, CallError> {
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
                    inner.count_redirect();
                    inner.look.notify_one();
                    asked = Some(inner.moved(slot, at_host_of(node, &link)));
                    is_asking = false;
                }
                Err(CallError::Ask(_)) if work.finds_more_keys() => {
                    return Err(CallError::NotNow("the slot is being moved".to_owned()));
                }
                Err(CallError::Ask(node)) => {
                    is_redirected = true;
                    inner.count_redirect();
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
            // A call that is redirected forever ends at the deadline.
            if now() >= deadline {
                return Err(CallError::NotNow("redirected without end".to_owned()));
            }
        }
    }

    /// The problem, if not every slot has a server that answers.
    pub(crate) fn problem(&self) -> Option<String> {
        let map = self.inner.map.load();
        if map.masters.is_empty() {
            return Some(map.problem.clone());
        }
        let mut down = map.owners.iter().flatten().filter(|link| !link.is_up());
        match down.next() {
            Some(link) => Some(format!(
                "one of its masters is unreachable: {}",
                link.problem()
            )),
            None if map.owners.iter().any(Option::is_none) => {
                Some("some of its slots have no master".to_owned())
            }
            None => None,
        }
    }

    /// Since when not every slot has a server that answers.
    pub(crate) fn broken_since(&self) -> Option<Timestamp> {
        self.problem()?;
        Some(self.inner.break_now())
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

    /// The server that has `slot`.
    pub(crate) fn node_of(&self, slot: u16) -> Option<RedisNode> {
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

impl Drop for ClusterLinks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Map {
    fn unknown(problem: String) -> Self {
        Self {
            owners: vec![None; SLOTS],
            masters: Vec::new(),
            problem,
        }
    }
}

impl ClusterInner {
    fn count_redirect(&self) {
        let stats = &self.settings.stats;
        stats.add(&stats.redirects);
    }

    fn owner(&self, slot: u16) -> Option<Arc<Link>> {
        self.map.load().owners.get(usize::from(slot))?.clone()
    }

    /// The link to `node`, made if there is none.
    fn link(&self, node: RedisNode) -> Arc<Link> {
        let mut links = self.links.lock();
        let link = links.entry(node).or_insert_with_key(|node| {
            let target = LinkTarget::Node(node.clone());
            Arc::new(Link::open(target, self.settings.clone()))
        });
        Arc::clone(link)
    }

    /// Records that `node` has the slot now.
    fn moved(&self, slot: u16, node: RedisNode) -> Arc<Link> {
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

    /// Records which server has which slots, and closes links that are no longer needed.
    fn put(&self, ranges: Vec<(u16, u16, RedisNode)>) {
        let mut owners = vec![None; SLOTS];
        let mut masters: Vec<RedisNode> = Vec::new();
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
        // The server that sent this map may be out of date: links are kept while they are in use.
        self.links
            .lock()
            .retain(|node, link| masters.contains(node) || link.is_in_use());
        self.map.store(Arc::new(Map {
            owners,
            masters,
            problem: "the cluster has no master for this slot".to_owned(),
        }));
    }

    /// Notes that it is not whole, if that is new. Returns since when.
    fn break_now(&self) -> Timestamp {
        let mut since = self.broken_since.lock();
        *since.get_or_insert_with(|| SystemClock.now())
    }

    /// Whether every slot has a master that is up.
    fn is_whole(&self) -> bool {
        let map = self.map.load();
        let is_up = |owner: &Option<Arc<Link>>| owner.as_ref().is_some_and(|link| link.is_up());
        map.owners.iter().all(is_up)
    }
}

/// The node that a redirect names. Without a host it is on the host of the server that was asked.
fn at_host_of(node: RedisNode, asked: &Link) -> RedisNode {
    match (node, asked.connected_to()) {
        (RedisNode::Tcp { host, port }, Some(RedisNode::Tcp { host: known, .. }))
            if host.is_empty() =>
        {
            RedisNode::Tcp { host: known, port }
        }
        (node, _) => node,
    }
}

/// Reads the map again and again: as soon as a call finds it to be stale, often while something is wrong,
/// and every second otherwise.
async fn watch(inner: Arc<ClusterInner>) {
    let mut connections: HashMap<RedisNode, MultiplexedConnection> = HashMap::new();
    let mut backoff = Backoff::new();
    loop {
        let mut nodes = inner.map.load().masters.clone();
        // Servers with a connection are asked first.
        nodes.sort_by_key(|node| !connections.contains_key(node));
        nodes.extend(inner.seeds.iter().cloned());
        let mut problems = Vec::new();
        let mut found = None;
        for node in nodes {
            match look(&inner.settings.dialer, &node, &mut connections).await {
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
                inner.map.store(Arc::new(Map::unknown(problem)));
            }
            inner.break_now();
            tokio::time::sleep(backoff.next()).await;
            continue;
        }
        let pause = if inner.is_whole() {
            *inner.broken_since.lock() = None;
            LOOK_EVERY
        } else {
            inner.break_now();
            LOOK_AGAIN * 4
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = inner.look.notified() => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

/// The map as one server knows it.
async fn look(
    dialer: &Dialer,
    node: &RedisNode,
    connections: &mut HashMap<RedisNode, MultiplexedConnection>,
) -> Result<Vec<(u16, u16, RedisNode)>, String> {
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

/// Reads `CLUSTER SLOTS`: first and last slot, then the master's host and port. Invalid entries are left out.
pub(crate) fn ranges(value: &Value, asked: &RedisNode) -> Vec<(u16, u16, RedisNode)> {
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
            (None, RedisNode::Tcp { host, .. }) => host.clone(),
            (None, RedisNode::Unix(_)) => return None,
        };
        let port = number(master.get(1))?;
        Some((
            number(row.first())?,
            number(row.get(1))?,
            RedisNode::Tcp { host, port },
        ))
    };
    rows.iter().filter_map(read).collect()
}
