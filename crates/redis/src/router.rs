//! Sends each call to the server that has its keys, and retries where nothing has run.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use tidegate_core::{StoreError, Timestamp};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::call::{CallBody, CallError, CallReply, StepReply};
use crate::cluster::ClusterLinks;
use crate::dial::{Dialer, NO_ANSWER, Role};
use crate::follow_master::follow_master;
use crate::link::{Link, LinkSettings, LinkTarget, NOT_YET};
use crate::monotonic::{now, until};
use crate::sentinel::Sentinels;
use crate::settings::{RedisSettings, RedisTls};
use crate::stats::Stats;
use crate::url::{RedisNode, Topology};
use tidegate_redis_wire::keys::{RedisKeys, slot_of};
use tidegate_redis_wire::wire::LuaStep;

/// How long to wait before the first retry of a call that the server could not serve; doubles each time.
const AGAIN: Duration = Duration::from_millis(1);
/// How much earlier than its deadline a call ends. Timers fire up to two milliseconds late: they are exact to a
/// millisecond, and so is the wait for the network in which they fire.
const EARLIER: Duration = Duration::from_micros(750);

/// The servers of a store, whatever their topology.
pub(crate) struct Router {
    keys: RedisKeys,
    servers: Servers,
    dialer: Dialer,
    deadline: Duration,
}

enum Servers {
    One {
        link: Arc<Link>,
        /// Follows the sentinels, if there are any.
        follower: Option<JoinHandle<()>>,
    },
    Cluster(ClusterLinks),
}

impl Router {
    /// Uses these certificates for new connections.
    pub(crate) fn set_tls(&self, tls: RedisTls) {
        self.dialer.set_tls(tls);
    }

    /// Begins to connect. Must be called within a runtime.
    pub(crate) fn open(
        settings: &Arc<RedisSettings>,
        stats: &Arc<Stats>,
        keys: &RedisKeys,
    ) -> Self {
        let dialer = Dialer::new(Arc::clone(settings));
        let deadline = settings.deadline;
        let topology = settings.url.topology.clone();
        let settings = LinkSettings {
            dialer: dialer.clone(),
            deadline,
            is_cluster: matches!(topology, Topology::Cluster { .. }),
            stats: Arc::clone(stats),
            probe: LuaStep::probe(keys),
        };
        let servers = match topology {
            Topology::One(node) => Servers::One {
                link: Arc::new(Link::open(LinkTarget::Node(node), settings)),
                follower: None,
            },
            Topology::Sentinel { sentinels, name } => {
                let sentinels = Arc::new(Sentinels::new(sentinels, name, dialer.clone()));
                let target = LinkTarget::MasterOf(Arc::clone(&sentinels));
                let link = Arc::new(Link::open(target, settings));
                let follower = tokio::spawn(follow_master(sentinels, Arc::downgrade(&link)));
                Servers::One {
                    link,
                    follower: Some(follower),
                }
            }
            Topology::Cluster { seeds } => Servers::Cluster(ClusterLinks::open(seeds, settings)),
        };
        Self {
            keys: keys.clone(),
            servers,
            dialer,
            deadline,
        }
    }

    /// Whether keys in different slots cannot be decided in one step.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// How long a call may take.
    pub(crate) fn patience(&self) -> Duration {
        self.deadline
    }

    /// The deadline of a call that starts now. A little earlier than set, because timers fire late.
    pub(crate) fn deadline(&self) -> Instant {
        let earlier = EARLIER.min(self.deadline / 10);
        now() + self.deadline.saturating_sub(earlier)
    }

    /// The future's output, unless the deadline passes first.
    pub(crate) async fn until<F: Future>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        until(deadline, self.deadline, future).await
    }

    /// Sends a step to the server that has its keys, which share a slot.
    pub(crate) async fn step(
        &self,
        step: impl Into<Arc<LuaStep>>,
        deadline: Instant,
    ) -> Result<StepReply, StoreError> {
        let mut step = step.into();
        let slot = step.slot();
        if step.brings_time() {
            // Where slots do not matter, all reservations are in one list.
            let listed = if self.is_cluster() { slot } else { 0 };
            Arc::make_mut(&mut step).end_due(self.keys.ends(listed));
        }
        match self.ask(slot, CallBody::Step(step), deadline).await? {
            CallReply::Step(reply) => Ok(reply),
            CallReply::Command(_) => Err(unreadable("a step was answered like a command")),
        }
    }

    /// Sends a command to the server that has `key`.
    pub(crate) async fn command(
        &self,
        key: &str,
        command: redis::Cmd,
        deadline: Instant,
    ) -> Result<redis::Value, StoreError> {
        let work = CallBody::Command(Arc::new(command));
        match self.ask(slot_of(key), work, deadline).await? {
            CallReply::Command(value) => Ok(value),
            CallReply::Step(_) => Err(unreadable("a command was answered like a step")),
        }
    }

    /// A separate connection to the server that has `key`, for commands that would block others.
    pub(crate) async fn dial(&self, key: &str) -> Result<MultiplexedConnection, StoreError> {
        let node = self.node_of(key)?;
        let dialed = self.dialer.dial(&node, Role::Server).await;
        dialed.map_err(|error| StoreError::Unreachable(error.into()))
    }

    /// A connection that receives published messages.
    pub(crate) async fn listen(&self, key: &str) -> Result<PubSub, StoreError> {
        let node = self.node_of(key)?;
        let dialed = self.dialer.listen(&node, Role::Server).await;
        dialed.map_err(|error| StoreError::Unreachable(error.into()))
    }

    fn node_of(&self, key: &str) -> Result<RedisNode, StoreError> {
        let node = match &self.servers {
            Servers::One { link, .. } => link.connected_to(),
            Servers::Cluster(cluster) => cluster.node_of(slot_of(key)),
        };
        node.ok_or_else(|| {
            let problem = self.problem();
            StoreError::Unreachable(problem.unwrap_or_else(|| "not connected".to_owned()).into())
        })
    }

    async fn ask(
        &self,
        slot: u16,
        work: CallBody,
        deadline: Instant,
    ) -> Result<CallReply, StoreError> {
        let mut again = AGAIN;
        loop {
            let answer = match &self.servers {
                Servers::One { link, .. } => link.call(work.clone(), false, deadline).await,
                Servers::Cluster(cluster) => cluster.call(slot, work.clone(), deadline).await,
            };
            match answer {
                Ok(reply) => return Ok(reply),
                // Nothing has run; a retry may succeed.
                Err(CallError::NotNow(_)) if now() + again * 2 < deadline => {
                    tokio::time::sleep(again).await;
                    again *= 2;
                }
                Err(error) => return Err(self.store_error(error)),
            }
        }
    }

    fn store_error(&self, error: CallError) -> StoreError {
        match error {
            CallError::Late => StoreError::TimedOut(self.deadline),
            CallError::Lost(_) => StoreError::Lost(error.into()),
            CallError::Unreadable(_) => StoreError::BadReply(error.into()),
            CallError::BadState(_) => StoreError::BadState(error.into()),
            CallError::Moved(_)
            | CallError::Ask(_)
            | CallError::NotNow(_)
            | CallError::Down(_)
            | CallError::Refused(_) => StoreError::Unreachable(error.into()),
        }
    }

    /// Whether calls are sent at present.
    pub(crate) fn is_up(&self) -> bool {
        match &self.servers {
            Servers::One { link, .. } => link.is_up(),
            Servers::Cluster(cluster) => cluster.is_up(),
        }
    }

    /// The problem, if Redis does not answer.
    pub(crate) fn problem(&self) -> Option<String> {
        match &self.servers {
            Servers::One { link, .. } if link.is_up() => None,
            Servers::One { link, .. } => Some(link.problem()),
            Servers::Cluster(cluster) => cluster.problem(),
        }
    }

    /// Since when Redis, or a part of it, does not answer.
    pub(crate) fn degraded_since(&self) -> Option<Timestamp> {
        match &self.servers {
            Servers::One { link, .. } => link.down_since(),
            Servers::Cluster(cluster) => cluster.broken_since(),
        }
    }

    /// A slot of every server, and whether all slots have a server.
    pub(crate) fn slots_by_server(&self) -> (Vec<u16>, bool) {
        match &self.servers {
            Servers::One { .. } => (vec![0], true),
            Servers::Cluster(cluster) => cluster.slots_by_master(),
        }
    }

    /// Whether it has neither answered nor refused so far.
    pub(crate) fn is_slow(&self) -> bool {
        let problem = self.problem();
        problem.is_some_and(|problem| problem.contains(NOT_YET) || problem.contains(NO_ANSWER))
    }

    /// How many calls wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        match &self.servers {
            Servers::One { link, .. } => link.waiting(),
            Servers::Cluster(cluster) => cluster.waiting(),
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Servers::One {
            follower: Some(follower),
            ..
        } = &self.servers
        {
            follower.abort();
        }
    }
}

fn unreadable(what: &str) -> StoreError {
    StoreError::BadReply(what.into())
}
