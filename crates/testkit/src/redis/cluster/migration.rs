//! A slot on its way from one node to another, a step at a time.
//!
//! In between, the old node answers ASK for keys that it no longer has and TRYAGAIN for several keys of
//! which it has only some; when it is finished, MOVED.

use super::{Cluster, PATIENCE};
use crate::redis::RedisServer;
use crate::wait_until;

/// A slot that is being moved. Dropping it leaves the slot as it is.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl<'a> Migration<'a> {
    pub(super) fn begin(cluster: &'a Cluster, slot: u16, to: &'a RedisServer) -> Self {
        let migration = Self {
            cluster,
            slot: slot.to_string(),
            from: cluster.master_of(slot),
            to,
        };
        let slot = &migration.slot;
        let (old, new) = (id_of(migration.from), id_of(to));
        let _: () = to.query(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &old]);
        let _: () = migration
            .from
            .query(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &new]);
        migration
    }

    /// The node that had the slot.
    pub fn from(&self) -> &'a RedisServer {
        self.from
    }

    /// The node that gets it.
    pub fn to(&self) -> &'a RedisServer {
        self.to
    }

    /// The keys of the slot that have not moved, as far as they are text.
    pub fn keys(&self) -> Vec<String> {
        self.from
            .query(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "1000000"])
    }

    /// Moves one key; none if it is not there.
    pub fn move_key(&self, key: &str) {
        let port = self.to.port().to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
        if let Some(password) = &self.to.options.password {
            match &self.to.options.user {
                Some(user) => command.extend(["AUTH2", user, password]),
                None => command.extend(["AUTH", password]),
            }
        }
        command.extend(["KEYS", key]);
        let _: String = self.from.query(&command);
    }

    /// Moves every key that is left.
    pub fn move_keys(&self) {
        for key in self.keys() {
            self.move_key(&key);
        }
    }

    /// Moves what is left, gives the slot to its new node and waits until all that answer know.
    pub fn finish(self) {
        self.move_keys();
        let id = id_of(self.to);
        let command = ["CLUSTER", "SETSLOT", &self.slot, "NODE", &id];
        let _: () = self.to.query(&command);
        let _: () = self.from.query(&command);
        let slot = self.slot.parse().expect("a slot");
        wait_until("the slot has moved", PATIENCE, || {
            let owner = self.cluster.owner(slot)?;
            (owner == self.to.address()).then_some(())
        });
    }
}

fn id_of(node: &RedisServer) -> String {
    node.query(&["CLUSTER", "MYID"])
}
