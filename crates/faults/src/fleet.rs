//! The servers of one row: alike, each with a folder and a rule file of its own.

use std::fs;
use std::net::SocketAddr;

use anyhow::Context as _;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::ground::Ground;
use crate::rules::rule_file;
use crate::server::{FleetServer, Launch};

/// The servers. They and their files go when it is dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) servers: Vec<FleetServer>,
    /// Removed after the servers, which are dropped first.
    folder: TempDir,
}

impl Fleet {
    /// That many servers, not started; `redis` is the URL of their store, and none is memory.
    pub(crate) fn new(ground: &Ground, count: usize, redis: Option<&str>) -> anyhow::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let folder = builder.prefix("tidegate-faults-").tempdir();
        let folder = folder.context("a temporary folder")?;
        let mut fleet = Self {
            servers: Vec::new(),
            folder,
        };
        for number in 0..count {
            let own = fleet.folder.path().join(format!("server-{number}"));
            fs::create_dir_all(&own)?;
            fs::write(own.join("rules.yaml"), rule_file())?;
            let mut launch = Launch::default();
            let flags = &mut launch.flags;
            flags.extend(["--rules".to_owned(), "rules.yaml".to_owned()]);
            let mut set = |name: &str, value: String| {
                launch.variables.push((format!("TIDEGATE_{name}"), value));
            };
            set("KEY_SECRET", "fault suite".to_owned());
            if let Some(url) = redis {
                set("REDIS", url.to_owned());
                set(
                    "REDIS_DEADLINE",
                    format!("{}ms", ground.deadline.as_millis()),
                );
            }
            let server = FleetServer::new(&ground.program, own, launch)?;
            fleet.servers.push(server);
        }
        Ok(fleet)
    }

    /// One more variable for all of them.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        for server in &mut self.servers {
            let variables = &mut server.launch.variables;
            variables.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Starts all of them and waits until they answer.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        for server in &mut self.servers {
            server.spawn()?;
        }
        for server in &mut self.servers {
            server.wait_until_it_answers()?;
        }
        Ok(())
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(FleetServer::address).collect()
    }

    /// The sum of a metric over the servers that answer.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let values = self
            .servers
            .iter()
            .filter_map(|server| server.metric(name).ok());
        values.sum()
    }

    /// How many of them do not run, and how many panics they logged.
    pub(crate) fn casualties(&mut self) -> (usize, usize) {
        let dead = self.servers.iter_mut().filter_map(|server| {
            let is_dead = !server.is_alive();
            is_dead.then_some(())
        });
        let dead = dead.count();
        let logs = self.servers.iter().map(FleetServer::log);
        (dead, logs.map(|log| log.matches("panicked").count()).sum())
    }

    /// Sends a signal to one of them.
    pub(crate) fn signal(&self, server: usize, signal: Signal) -> anyhow::Result<()> {
        self.servers[server].signal(signal)
    }
}
