//! Whether Redis answers: every server is asked in the way that a decision asks it.

use futures_util::future::join_all;
use tidegate_core::{
    Algorithm, Charge, Limit, Micros, Rate, Request, Scope, StoreError, Timestamp,
};

use crate::store::RedisStore;
use tidegate_redis_wire::keys::tag_of;
use tidegate_redis_wire::plan::Plan;
use tidegate_redis_wire::wire::LuaStep;

/// How much of Redis answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// All of it.
    Whole,
    /// Some masters of a Cluster do not answer, or some slots have no master; their keys are decided without
    /// Redis. Contains the problem.
    Part(String),
    /// Nothing. Contains the problem.
    Down(String),
}

/// Whether calls are sent to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// To all of it.
    Closed,
    /// Not to some masters of a Cluster; their keys are decided without Redis.
    Partial,
    /// To none of it: every call fails immediately.
    Open,
}

impl RedisStore {
    /// Whether calls are sent. Makes no call.
    pub fn breaker(&self) -> Breaker {
        match self.problem() {
            None => Breaker::Closed,
            Some(_) if self.router().is_up() => Breaker::Partial,
            Some(_) => Breaker::Open,
        }
    }

    /// Since when Redis, or a part of it, does not answer; `None` if all of it does. For a Cluster, to the
    /// second.
    pub fn degraded_since(&self) -> Option<Timestamp> {
        self.router().degraded_since()
    }

    /// Asks every server, and waits for the answers as long as a decision does.
    pub async fn health(&self) -> Health {
        let (slots, is_covered) = self.router().slots_by_server();
        let asked = join_all(slots.into_iter().map(|slot| self.ask_in(slot))).await;
        let is_any = asked.iter().any(Result::is_ok);
        let error = asked.into_iter().find_map(Result::err);
        let problem = match error {
            Some(error) => self.problem().unwrap_or_else(|| {
                // The connection has just been lost.
                let is_part = self.router().is_cluster();
                let what = if is_part {
                    "one of its masters is unreachable: "
                } else {
                    ""
                };
                format!("{what}{error}")
            }),
            None if !is_covered => {
                let uncovered = || "some of its slots have no master".to_owned();
                self.problem().unwrap_or_else(uncovered)
            }
            None => return Health::Whole,
        };
        if is_any {
            return Health::Part(problem);
        }
        Health::Down(problem)
    }

    /// Asks for a counter in this slot, which is left as it is.
    async fn ask_in(&self, slot: u16) -> Result<(), StoreError> {
        let scope = Scope::new("probe");
        let limit = Limit::new(Rate::new(1, Micros::DAY), Algorithm::TOKEN_BUCKET);
        let limit = limit.map_err(|error| StoreError::BadReply(error.into()))?;
        let charges = [Charge {
            scope: &scope,
            limit: &limit,
            key: tag_of(slot),
            cost: 0,
        }];
        let plan = Plan::new(self.keys(), &Request::new(&charges));
        let deadline = self.router().deadline();
        self.router()
            .step(LuaStep::peek(&plan), deadline)
            .await
            .map(drop)
    }
}
