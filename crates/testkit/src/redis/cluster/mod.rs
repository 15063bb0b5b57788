//! Three masters that share the slots, with a replica each or without, quick to notice and to act.

mod migration;
mod slot;
mod view;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

pub use migration::Migration;
use redis::RedisResult;
pub use slot::{SLOTS, slot_of, tag_of};
use view::SeenNode;

use super::replication::Replication;
use super::server::BRIEF;
use super::{Promotion, RedisOptions, RedisServer};
use crate::{now, wait_until};

const MASTERS: u16 = 3;
const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster whose nodes may be killed or stopped. What is left of it serves on.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
}

impl Cluster {
    /// Three masters without replicas.
    pub fn start() -> Self {
        Self::start_with(0, &RedisOptions::default())
    }

    /// Three masters with a replica each.
    pub fn with_replicas() -> Self {
        Self::start_with(1, &RedisOptions::default())
    }

    /// Three masters with that many replicas each, all nodes started with `options` (a program, a password
    /// or a user; no TLS).
    pub fn start_with(replicas: u16, options: &RedisOptions) -> Self {
        let node = options
            .clone()
            .line("cluster-enabled yes")
            .line("cluster-node-timeout 1000")
            .line("cluster-require-full-coverage no")
            .line("cluster-allow-replica-migration no")
            .line("cluster-replica-validity-factor 0")
            .line("cluster-announce-ip 127.0.0.1");
        let count = MASTERS * (1 + replicas);
        let nodes = (0..count).map(|_| node.start()).collect();
        let cluster = Self { nodes };
        cluster.deal_slots();
        cluster.introduce();
        cluster.add_replicas();
        cluster.wait_until_ok();
        cluster
    }

    /// All nodes: three masters, then the replicas of the first, second and third, and so on around.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// `redis+cluster://host:port,host:port,…`, with user and password of the nodes.
    pub fn url(&self) -> String {
        let addresses = self.nodes.iter().map(|node| node.address().to_string());
        let addresses: Vec<_> = addresses.collect();
        let login = self.nodes[0].login();
        format!("redis+cluster://{login}{}", addresses.join(","))
    }

    /// The node at an address. Panics if it is none of these.
    pub fn node_at(&self, address: SocketAddr) -> &RedisServer {
        let found = self.nodes.iter().find(|node| node.address() == address);
        found.unwrap_or_else(|| panic!("no node of this cluster is at {address}"))
    }

    /// The master of a slot by what the nodes that answer say, alive or not. Panics if they disagree.
    pub fn master_of(&self, slot: u16) -> &RedisServer {
        let owner = wait_until("the nodes agree on the slot", PATIENCE, || self.owner(slot));
        self.node_at(owner)
    }

    /// The replicas that follow a node.
    pub fn replicas_of(&self, master: &RedisServer) -> Vec<&RedisServer> {
        let id: String = master.query(&["CLUSTER", "MYID"]);
        let seen = wait_until("a node lists the others", PATIENCE, || seen_by(master));
        let followers = seen
            .iter()
            .filter(|node| node.follows.as_ref() == Some(&id));
        followers.map(|node| self.node_at(node.address)).collect()
    }

    /// Ends the master of a slot (SIGKILL), and returns it.
    pub fn kill_master_of(&self, slot: u16) -> &RedisServer {
        let old = self.master_of(slot);
        old.kill();
        old
    }

    /// Waits until all nodes that answer name the same new master of a slot instead of `old`, and are well.
    pub fn wait_for_promotion(&self, slot: u16, old: &RedisServer) -> Promotion {
        wait_until("the slot has a new master", PATIENCE, || {
            let address = self.owner(slot).filter(|owner| *owner != old.address())?;
            let info: String = self
                .node_at(address)
                .query_within(BRIEF, &["CLUSTER", "INFO"])
                .ok()?;
            let at = now();
            info.contains("cluster_state:ok")
                .then_some(Promotion { address, at })
        })
    }

    /// Begins to move a slot to another node: keys that are still there are served there, others by ASK.
    pub fn migrate<'a>(&'a self, slot: u16, to: &'a RedisServer) -> Migration<'a> {
        Migration::begin(self, slot, to)
    }

    /// Waits until every node that is alive says that the cluster is well.
    pub fn wait_until_ok(&self) {
        wait_until("the cluster is well", PATIENCE, || {
            let mut alive = self.nodes.iter().filter(|node| node.is_alive());
            let well = alive.all(|node| {
                let info: RedisResult<String> = node.query_within(BRIEF, &["CLUSTER", "INFO"]);
                info.is_ok_and(|info| info.contains("cluster_state:ok"))
            });
            well.then_some(())
        });
    }

    /// Waits until every replica that answers has what had been written to its master when this was called.
    pub fn wait_for_replicas(&self) {
        let written = self.nodes.iter().map(|node| {
            let state = Replication::of(node);
            (node.port(), state.map_or(0, |state| state.written))
        });
        let written: HashMap<u16, u64> = written.collect();
        wait_until("all replicas are in sync", PATIENCE, || {
            let states = self.nodes.iter().filter_map(Replication::of);
            let mut replicas = states.filter(|state| !state.is_master);
            let synced = replicas.all(|state| {
                let master = state.follows.and_then(|port| written.get(&port));
                state.has(master.copied().unwrap_or(0))
            });
            synced.then_some(())
        });
    }

    /// The address that serves a slot, if all nodes that answer name the same.
    fn owner(&self, slot: u16) -> Option<SocketAddr> {
        let mut owners = self.nodes.iter().filter_map(|node| {
            let seen = seen_by(node)?;
            let owner = seen.into_iter().find(|other| other.serves(slot));
            Some(owner.map(|owner| owner.address))
        });
        let first = owners.next()?;
        first.filter(|_| owners.all(|other| other == first))
    }

    fn deal_slots(&self) {
        for (number, node) in (0..MASTERS).zip(&self.nodes) {
            let first = SLOTS / MASTERS * number;
            let last = match number + 1 {
                MASTERS => SLOTS - 1,
                next => SLOTS / MASTERS * next - 1,
            };
            let (first, last) = (first.to_string(), last.to_string());
            let _: () = node.query(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            let epoch = (number + 1).to_string();
            let _: () = node.query(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
    }

    /// Makes every node known to every other.
    fn introduce(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                let port = other.port().to_string();
                let _: () = node.query(&["CLUSTER", "MEET", "127.0.0.1", &port]);
            }
        }
        wait_until("every node knows every other", PATIENCE, || {
            let all = self.nodes.iter().all(|node| {
                let seen = seen_by(node).unwrap_or_default();
                seen.len() == self.nodes.len() && seen.iter().all(SeenNode::is_connected)
            });
            all.then_some(())
        });
    }

    fn add_replicas(&self) {
        let (masters, replicas) = self.nodes.split_at(usize::from(MASTERS));
        for (replica, master) in replicas.iter().zip(masters.iter().cycle()) {
            let id: String = master.query(&["CLUSTER", "MYID"]);
            let _: () = replica.query(&["CLUSTER", "REPLICATE", &id]);
        }
        wait_until("the replicas are known to all", PATIENCE, || {
            let known = self.nodes.iter().all(|node| {
                let seen = seen_by(node).unwrap_or_default();
                seen.iter().filter(|node| node.follows.is_some()).count() == replicas.len()
            });
            (known && self.agree_on_shards()).then_some(())
        });
        self.wait_for_replicas();
    }

    /// Whether all nodes have written down the same shard for each of them. A Valkey that is killed before
    /// does not start again: it finds its own notes corrupt.
    fn agree_on_shards(&self) -> bool {
        let mut notes = self.nodes.iter().map(|node| {
            let notes = std::fs::read_to_string(node.folder().join("nodes.conf"));
            view::shards(&notes.unwrap_or_default())
        });
        let first = notes.next();
        notes.all(|other| Some(&other) == first.as_ref())
    }
}

/// What a node says of all, if it answers.
fn seen_by(node: &RedisServer) -> Option<Vec<SeenNode>> {
    let reply: String = node.query_within(BRIEF, &["CLUSTER", "NODES"]).ok()?;
    Some(view::read(&reply))
}
