//! A master, its replicas and three Sentinels that watch them, quick to notice and to act.

use std::net::SocketAddr;
use std::time::Duration;

use redis::RedisResult;

use super::replication::Replication;
use super::server::BRIEF;
use super::{Promotion, RedisOptions, RedisServer};
use crate::{now, wait_until};

const SENTINELS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(20);

/// A group of servers under the name `mymaster`, any of which may be killed or stopped.
#[derive(Debug)]
pub struct Sentinel {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl Sentinel {
    /// The name of the master.
    pub const NAME: &str = "mymaster";

    /// A master with one replica.
    pub fn start() -> Self {
        Self::start_with(1, &RedisOptions::default())
    }

    /// A master with that many replicas, all of them started with `options` (a program, a password or a
    /// user; no TLS). The Sentinels themselves ask for no password.
    pub fn start_with(replicas: usize, options: &RedisOptions) -> Self {
        let master = options.start();
        let follow = format!("replicaof 127.0.0.1 {}", master.port());
        let follower = || options.clone().line(follow.clone()).start();
        let followers: Vec<_> = (0..replicas).map(|_| follower()).collect();
        let mut servers = vec![master];
        servers.extend(followers);
        let mut group = Self {
            servers,
            sentinels: Vec::new(),
        };
        // A Sentinel asks a master for its replicas only now and then: let it see them at once.
        group.wait_for_replicas();
        let watch = watcher(options, group.servers[0].port());
        for _ in 0..SENTINELS {
            let sentinel = watch.start();
            hurry(&sentinel, TALK_AT_START);
            group.sentinels.push(sentinel);
        }
        group.wait_until_watched();
        for sentinel in &group.sentinels {
            hurry(sentinel, TALK);
        }
        group
    }

    /// The master and its replicas, the first master first.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// `redis+sentinel://host:port,host:port,host:port/mymaster`, with user and password of the servers.
    pub fn url(&self) -> String {
        let addresses = self.sentinels.iter().map(|one| one.address().to_string());
        let addresses: Vec<_> = addresses.collect();
        let login = self.servers[0].login();
        format!(
            "redis+sentinel://{login}{}/{}",
            addresses.join(","),
            Self::NAME
        )
    }

    /// The server at an address. Panics if it is none of these.
    pub fn server_at(&self, address: SocketAddr) -> &RedisServer {
        let mut servers = self.servers.iter();
        let found = servers.find(|server| server.address() == address);
        found.unwrap_or_else(|| panic!("no server of this group is at {address}"))
    }

    /// The master that the Sentinels name, alive or not. Panics if they disagree.
    pub fn master(&self) -> &RedisServer {
        let named = self.named().expect("the Sentinels agree");
        self.server_at(named)
    }

    /// Waits until one of the servers that answer is a master, and all others have what had been written to it
    /// when this was called.
    pub fn wait_for_replicas(&self) {
        let states = || self.servers.iter().filter_map(Replication::of);
        let masters = states().filter(|state| state.is_master);
        let written = masters.map(|state| state.written).max().unwrap_or(0);
        wait_until("all replicas are in sync", PATIENCE, || {
            let (all, synced) = states().fold((0, 0), |(all, synced), state| {
                (all + 1, synced + u32::from(state.has(written)))
            });
            (synced + 1 == all).then_some(())
        });
    }

    /// Asks for a failover while all is well (`SENTINEL FAILOVER`), and returns the old master.
    pub fn fail_over(&self) -> &RedisServer {
        let old = self.master();
        let command = ["SENTINEL", "FAILOVER", Self::NAME];
        wait_until("a Sentinel starts a failover", PATIENCE, || {
            let started: RedisResult<()> = self.sentinels[0].try_query(&command);
            started.ok()
        });
        old
    }

    /// Ends the master (SIGKILL), and returns it.
    pub fn kill_master(&self) -> &RedisServer {
        let old = self.master();
        old.kill();
        old
    }

    /// Stops the master where it is (SIGSTOP), and returns it.
    pub fn stop_master(&self) -> &RedisServer {
        let old = self.master();
        old.stop();
        old
    }

    /// Waits until all Sentinels that answer name the same new master instead of `old`, and it says so too.
    pub fn wait_for_new_master(&self, old: &RedisServer) -> Promotion {
        wait_until("there is a new master", PATIENCE, || {
            let address = self.named().filter(|named| *named != old.address())?;
            let new = self.server_at(address);
            let state = Replication::of(new)?;
            let at = now();
            state.is_master.then_some(Promotion { address, at })
        })
    }

    /// The master's address, if all Sentinels that answer name the same.
    fn named(&self) -> Option<SocketAddr> {
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME];
        let mut named = self.sentinels.iter().filter_map(|sentinel| {
            let reply: (String, u16) = sentinel.query_within(BRIEF, &command).ok()?;
            Some(SocketAddr::new(reply.0.parse().ok()?, reply.1))
        });
        let first = named.next()?;
        named.all(|other| other == first).then_some(first)
    }

    /// Waits until every Sentinel knows the replicas and the other Sentinels, and is known to them.
    fn wait_until_watched(&self) {
        let quorum = ["SENTINEL", "CKQUORUM", Self::NAME];
        let others = format!("sentinels={SENTINELS}");
        let replicas = format!("slaves={}", self.servers.len() - 1);
        wait_until("the Sentinels know all", PATIENCE, || {
            let ready = self.sentinels.iter().all(|sentinel| {
                let known: String = sentinel.query(&["INFO", "sentinel"]);
                known.contains("status=ok")
                    && known.contains(&others)
                    && known.contains(&replicas)
                    && sentinel.try_query::<String>(&quorum).is_ok()
            });
            ready.then_some(())
        });
    }
}

/// How often a Sentinel talks of what it knows: often while they get to know each other.
const TALK_AT_START: &str = "100";
/// A Sentinel turns a promoted replica back unless it has learned of its promotion within four of these, and
/// the one that promotes it may not see that for a second.
const TALK: &str = "500";

/// Makes a Sentinel look and talk more often than it would, so that a test need not wait long.
fn hurry(sentinel: &RedisServer, talk: &str) {
    // Pings: a new master that has not been pinged within `down-after` counts as gone, so they come more
    // often than that. What is known of a replica counts for five of them, and while the master is away
    // more is learned only every second: with shorter ones no replica would be good enough.
    let mut command = vec!["SENTINEL", "DEBUG", "publish-period", talk];
    command.extend(["info-period", "500", "ping-period", "300"]);
    command.extend(["ask-period", "100", "tilt-period", "1000"]);
    let _: () = sentinel.query(&command);
}

/// A Sentinel for the master at `port`.
fn watcher(options: &RedisOptions, port: u16) -> RedisOptions {
    let name = Sentinel::NAME;
    let mut watch = RedisOptions::default().program(options.program);
    watch.sentinel = true;
    watch = watch
        .line(format!("sentinel monitor {name} 127.0.0.1 {port} 2"))
        .line(format!("sentinel down-after-milliseconds {name} 800"))
        .line(format!("sentinel failover-timeout {name} 2000"))
        .line("sentinel announce-ip 127.0.0.1");
    if let Some(password) = &options.password {
        watch = watch.line(format!("sentinel auth-pass {name} {password}"));
    }
    if let Some(user) = &options.user {
        watch = watch.line(format!("sentinel auth-user {name} {user}"));
    }
    watch
}
