//! The Redis store on real servers.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a server that fails here has failed the test, and it is real time that passes"
)]

mod across;
mod conformance;
mod damage;
mod failover;
mod faults;
mod health;
mod hints;
mod instances;
mod keys;
mod leases;
mod leases_used;
mod limiter;
mod linearizable;
mod login;
mod namespaces;
mod questions;
mod reservations;
mod resharding;
mod rules;
mod scopes;
mod sharing;
mod state_loss;
mod unsettled;

use std::time::Duration;

use tidegate_core::{
    Charge, Limit, Outcome, Outcomes, RemoteStore as _, Request, Scope, StoreError,
};
use tidegate_redis::{RedisSettings, RedisStore};

/// A store that is connected, with time enough for a busy machine.
async fn store(url: &str) -> RedisStore {
    store_within(url, Duration::from_secs(2)).await
}

/// A store that is connected, with this deadline.
async fn store_within(url: &str, deadline: Duration) -> RedisStore {
    let mut settings = RedisSettings::new(url.parse().unwrap());
    settings.deadline = deadline;
    let store = RedisStore::open(settings);
    store.connected(Duration::from_secs(10)).await.unwrap();
    store
}

/// One limit and one key.
#[derive(Clone)]
struct Asked {
    scope: Scope,
    limit: Limit,
    key: String,
}

impl Asked {
    fn new(scope: Scope, limit: &Limit, key: &str) -> Self {
        Self {
            scope,
            limit: limit.clone(),
            key: key.to_owned(),
        }
    }

    fn charge(&self, cost: u64) -> Charge<'_> {
        Charge {
            scope: &self.scope,
            limit: &self.limit,
            key: &self.key,
            cost,
        }
    }

    async fn ask(&self, store: &RedisStore, cost: u64) -> Result<Outcome, StoreError> {
        let charges = [self.charge(cost)];
        let outcomes: Outcomes = store.charge(&Request::new(&charges)).await?;
        Ok(outcomes[0])
    }

    async fn remaining(&self, store: &RedisStore) -> u64 {
        let charges = [self.charge(0)];
        store.peek(&Request::new(&charges)).await.unwrap()[0].remaining
    }
}
