//! What one node of a cluster thinks of all: the reply of `CLUSTER NODES`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A line of the reply.
#[derive(Debug, Clone)]
pub(super) struct SeenNode {
    pub(super) address: SocketAddr,
    pub(super) is_myself: bool,
    pub(super) is_master: bool,
    /// The id of the master, of a replica.
    pub(super) follows: Option<String>,
    is_linked: bool,
    slots: Vec<(u16, u16)>,
}

impl SeenNode {
    pub(super) fn serves(&self, slot: u16) -> bool {
        let mut slots = self.slots.iter();
        self.is_master && slots.any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// Whether the node that reports it can reach this one and knows what it is.
    pub(super) fn is_connected(&self) -> bool {
        self.is_myself || self.is_linked
    }

    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(1);
        let address = fields.next()?.split('@').next()?.parse().ok()?;
        let flags: Vec<_> = fields.next()?.split(',').collect();
        let follows = fields.next().filter(|id| *id != "-").map(str::to_owned);
        let state = fields.nth(3)?;
        let slots = fields.filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        Some(Self {
            address,
            is_myself: flags.contains(&"myself"),
            is_master: flags.contains(&"master"),
            follows,
            is_linked: state == "connected" && !flags.contains(&"handshake"),
            slots: slots.collect(),
        })
    }
}

/// All lines of the reply that name an address.
pub(super) fn read(reply: &str) -> Vec<SeenNode> {
    reply.lines().filter_map(SeenNode::read).collect()
}

/// The shard of each node, by its id, in what a node has written down. Redis writes none before 7.2.
pub(super) fn shards(notes: &str) -> BTreeMap<String, Option<String>> {
    let entries = notes.lines().filter(|line| line.contains('@'));
    let shard = |line: &str| {
        let (_, rest) = line.split_once("shard-id=")?;
        let end = rest.find([',', ' '])?;
        Some(rest[..end].to_owned())
    };
    entries
        .filter_map(|line| Some((line.split(' ').next()?.to_owned(), shard(line))))
        .collect()
}
