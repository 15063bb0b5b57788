//! Faults that keep what Redis has acknowledged, again and again while calls are made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_testkit::FaultProxy;
use tidegate_testkit::fault_proxy::FaultMode;
use tidegate_testkit::redis::{Cluster, RedisServer, SLOTS};

/// What goes wrong while calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepingFault {
    None,
    Hang,
    Slow,
    LostReplies,
    Resets,
    ScriptFlush,
    Resharding,
}

impl KeepingFault {
    /// How long all is well between two faults, in milliseconds.
    fn pause(self) -> u64 {
        match self {
            Self::Resharding => 20,
            // An instance takes a while until it trusts Redis again.
            Self::LostReplies => 300,
            _ => 100,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hang => "Redis is stopped for 40 ms (SIGSTOP)",
            Self::Slow => "replies are 10 ms late",
            Self::LostReplies => "replies are lost for 20 ms",
            Self::Resets => "connections are closed and refused for 5 ms",
            Self::ScriptFlush => "SCRIPT FLUSH",
            Self::Resharding => "a slot of a Cluster moves to another node",
        }
    }
}

/// The slots of a cluster that move, and that all keys are in.
const MOVING: [u16; 4] = [100, 4_242, 9_999, SLOTS - 1];

/// Redis, and what disturbs it.
pub(super) struct Disturbed {
    fault: KeepingFault,
    redis: DisturbedRedis,
}

enum DisturbedRedis {
    One(Box<RedisServer>, FaultProxy),
    Cluster(Cluster),
}

impl Disturbed {
    pub(super) fn start(fault: KeepingFault) -> Self {
        let redis = if fault == KeepingFault::Resharding {
            DisturbedRedis::Cluster(Cluster::start())
        } else {
            let server = Box::new(RedisServer::start());
            let proxy = FaultProxy::before(server.address());
            DisturbedRedis::One(server, proxy)
        };
        Self { fault, redis }
    }

    pub(super) fn url(&self) -> String {
        match &self.redis {
            DisturbedRedis::One(_, proxy) => format!("redis://{}", proxy.address()),
            DisturbedRedis::Cluster(cluster) => cluster.url(),
        }
    }

    /// The slots that keys must be in; none if any will do.
    pub(super) fn slots(&self) -> &'static [u16] {
        match self.redis {
            DisturbedRedis::One(..) => &[],
            DisturbedRedis::Cluster(_) => &MOVING,
        }
    }

    /// Lets the fault come and go until the calls are made, and returns how often it came.
    pub(super) fn until(self, done: &AtomicBool) -> u64 {
        let mut events = 0;
        while !done.load(Ordering::Relaxed) {
            match &self.redis {
                DisturbedRedis::One(server, proxy) => self.disturb(server, proxy),
                DisturbedRedis::Cluster(cluster) => {
                    let next = usize::try_from(events).unwrap() % MOVING.len();
                    move_slot(cluster, MOVING[next]);
                }
            }
            events += u64::from(self.fault != KeepingFault::None);
            pause(self.fault.pause());
        }
        events
    }

    fn disturb(&self, server: &RedisServer, proxy: &FaultProxy) {
        let through_proxy = |mode, millis| {
            proxy.set(mode);
            pause(millis);
            proxy.set(FaultMode::Pass);
        };
        match self.fault {
            KeepingFault::None | KeepingFault::Resharding => {}
            KeepingFault::Hang => {
                server.stop();
                pause(40);
                server.resume();
            }
            KeepingFault::Slow => {
                through_proxy(FaultMode::DelayReplies(Duration::from_millis(10)), 60);
            }
            KeepingFault::LostReplies => through_proxy(FaultMode::LoseReplies, 20),
            KeepingFault::Resets => through_proxy(FaultMode::Cut, 5),
            KeepingFault::ScriptFlush => {
                let _: String = server.query(&["SCRIPT", "FLUSH"]);
            }
        }
    }
}

/// Moves a slot to the next node, a step at a time.
fn move_slot(cluster: &Cluster, slot: u16) {
    let owner = cluster.master_of(slot).address();
    let mut nodes = cluster.nodes().iter().cycle();
    nodes.find(|node| node.address() == owner);
    let migration = cluster.migrate(slot, nodes.next().unwrap());
    pause(5);
    migration.move_keys();
    pause(5);
    migration.finish();
}

fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}
