//! The servers of the case: one in memory, two that share a Redis of any kind.

use std::any::Any;
use std::time::Duration;

use tidegate::rules::RuleSet;
use tidegate::{Gate, MemoryStore};
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::redis::{Cluster, RedisServer, Sentinel, slot_of};
use tidegate_testkit_server::TestFolder;

use super::model::Model;
use crate::Server;

/// A window in place of a bucket, so that time gives nothing back.
const BUDGET: &str = "missing: deny, unit: tokens, limit: 100/day, algorithm: fixed_window";

/// Where the budget is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BudgetStore {
    Memory,
    Redis,
    /// `sync: leased`, next to a rule that is exact.
    Leased,
    Sentinel,
    /// One rule, so that one slot decides.
    Cluster,
    /// Two rules, whose keys are in different slots.
    SeveralSlots,
}

/// Servers with every front end, and the model that their gateways forward to.
pub(super) struct BudgetServers {
    pub(super) servers: Vec<Server>,
    pub(super) model: Model,
    rules: String,
    /// None in memory.
    url: Option<String>,
    runtime: tokio::runtime::Runtime,
    _folders: Vec<TestFolder>,
    _redis: Box<dyn Any + Send + Sync>,
}

impl BudgetStore {
    fn rules(self) -> String {
        let sync = if self == Self::Leased {
            "leased"
        } else {
            "exact"
        };
        let user = format!("- {{id: user, per: [user_id], {BUDGET}, sync: {sync}}}\n");
        let team = format!("- {{id: team, per: [team], {BUDGET}}}\n");
        match self {
            Self::Cluster => format!("rules:\n{user}"),
            _ => format!("rules:\n{user}{team}"),
        }
    }

    fn start(self) -> (Option<String>, Box<dyn Any + Send + Sync>) {
        match self {
            Self::Memory => (None, Box::new(())),
            Self::Redis | Self::Leased => {
                let redis = RedisServer::start();
                (Some(redis.url()), Box::new(redis))
            }
            Self::Sentinel => {
                let sentinel = Sentinel::start();
                (Some(sentinel.url()), Box::new(sentinel))
            }
            Self::Cluster | Self::SeveralSlots => {
                let cluster = Cluster::start();
                (Some(cluster.url()), Box::new(cluster))
            }
        }
    }
}

impl BudgetServers {
    pub(super) fn start(store: BudgetStore) -> Self {
        let (url, redis) = store.start();
        let (model, rules) = (Model::start(), store.rules());
        let count = if url.is_some() { 2 } else { 1 };
        let folders: Vec<TestFolder> = (0..count).map(|_| TestFolder::new()).collect();
        let servers = folders.iter().map(|folder| {
            folder.write("rules.yaml", &rules);
            let mut settings = format!(
                "gateway: 127.0.0.1:0
resp: 127.0.0.1:0
upstream: http://{}
usage: openai
identify: {{user_id: {{header: x-user}}, team: {{header: x-team}}}}
",
                model.address
            );
            if let Some(url) = &url {
                let redis = format!("redis: {url}\nredis_deadline: 5s\n");
                settings.push_str(&redis);
            }
            folder.write("tidegate.yaml", &settings);
            folder.serve(&["--config", "tidegate.yaml", "--rules", "rules.yaml"])
        });
        Self {
            servers: servers.collect(),
            model,
            rules,
            url,
            runtime: tokio::runtime::Runtime::new().unwrap(),
            _folders: folders,
            _redis: redis,
        }
    }

    /// The server that a caller asks.
    pub(super) fn of(&self, caller: usize) -> &Server {
        &self.servers[caller % self.servers.len()]
    }

    /// Gates of a program that embeds the library, as many as there are servers.
    pub(super) fn gates(&self) -> Vec<(Gate, &tokio::runtime::Runtime)> {
        let rules = || RuleSet::from_yaml(&self.rules).unwrap();
        let gates = self.servers.iter().map(|_| {
            let gate = match &self.url {
                None => Gate::new(MemoryStore::new(), rules()),
                Some(url) => {
                    let mut settings = RedisSettings::new(url.parse().unwrap());
                    settings.deadline = Duration::from_secs(5);
                    let store = self.runtime.block_on(async {
                        let store = RedisStore::open(settings);
                        store.connected(Duration::from_secs(10)).await.unwrap();
                        store
                    });
                    Gate::new(store, rules())
                }
            };
            (gate, &self.runtime)
        });
        gates.collect()
    }
}

/// The team of a user, whose counter is in another slot of a cluster.
pub(super) fn team_of(user: &str) -> String {
    let slot = |key: &str| slot_of(&format!("{{{key}}}"));
    let mut teams = (0..).map(|number| format!("{user}-team-{number}"));
    // In another third of the slots, so on another node.
    teams
        .find(|team| slot(team) / 5_462 != slot(user) / 5_462)
        .unwrap()
}
